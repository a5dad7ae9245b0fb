"""`towpath cutover`: the destination becomes primary, and the way back.

`gate` is what must hold before, `preconditions` what the pause takes, `checked` the documents that the newest records
are about, `stopping` how writes end, `pause` for how long, `late` who writes all the same, `course` the steps,
`returning` those of the way back, `undoing` what takes them back, `telling` what is said of them, `report` the page.
"""
