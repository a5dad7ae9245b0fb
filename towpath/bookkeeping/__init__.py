"""What Towpath stores at the destination, in the database `towpath`: positions, the last verdict, a cutover."""
