"""A cutover: the destination becomes primary; and the fail back to the source.

`gate` checks what must hold before. `writes` stops the writes and watches for late ones, `pause` bounds the time
without writes and verifies in it. `steps` holds the steps and their undo, `fail_back` the steps of the return, `sides`
both directions with their marker, `events` the reporter.
`reverse_pipeline` creates the pipeline of the other direction and its file.
"""
