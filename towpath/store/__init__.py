"""What Towpath stores at the destination, in the database `towpath`: writers, positions, a verdict, a cutover."""
