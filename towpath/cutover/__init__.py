"""A cutover: the destination becomes primary; and the fail back to the source.

`gate` checks what must hold before. `writes` stops the writes and watches for late ones, `pause` bounds the time
without writes and verifies in it. `steps` holds the steps, `fail_back` those of the return, `undo` the undo of both.
`sides` is both directions with their marker, which one command at a time may change; `command` is what a command does
with all of these, `events` its reporter. `reverse_pipeline` creates the pipeline of the other direction and its file.
"""
