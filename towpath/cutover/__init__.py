"""A cutover makes the destination primary; a fail back makes the source primary again.

`machine` is the state machine, `steps` the table that it runs, `sides` both directions with their marker, which one
command at a time may change. `gate` checks what must hold before. `writes` stops the writes, `watches` follows late
ones, `pause` bounds the time without writes. `reverse_pipeline` creates the pipeline of the other
direction and its file.
"""
