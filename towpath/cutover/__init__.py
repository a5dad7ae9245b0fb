"""A cutover: the destination becomes primary, and the way back.

`gate` holds what must be true before, `preconditions` what the pause takes. `comparison` compares the documents that
the newest records are about, `write_stop` ends the writes, `pause` bounds the time without writes, `late_writes`
watches for writes after that. `steps` are the steps, `fail_back` those of the return, `undo` takes them back, `events`
is what happens. `reverse_pipeline` and `reverse_file` make the pipeline of the other direction.
"""
