"""What `towpath check` looks at, one module a place. Every look yields findings and changes nothing."""
