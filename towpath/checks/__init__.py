"""The checks of `towpath check`, one module per subject. Every check yields findings and changes nothing."""
