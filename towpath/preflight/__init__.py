"""The checks of `towpath check`, one module per place. Every check yields findings and changes nothing."""
