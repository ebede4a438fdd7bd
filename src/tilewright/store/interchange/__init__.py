"""Records in the forms other programs write: reading and writing them.

`kinds` tells which forms there are and guesses the one of a file; each of the other modules knows
one. A reader yields `lines.Line`s; whatever it does not understand is a line with a reason.
"""
