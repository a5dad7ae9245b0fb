"""The history check: clients append to lists at the source, and the lists of source, log and destination are compared.

`clients` append, `collected` reads what the three places held, `check` decides, on nothing but that. As in Elle
(Kingsbury and Alvaro, 2020), no number is appended twice: so a list shows the order of all appends to it.
"""
