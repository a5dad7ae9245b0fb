"""What a migration needs, before anything is made: gather facts, decide in pure functions, render."""
