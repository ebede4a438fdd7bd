"""The graph tuner's problem and its solvers: which layouts and choices cost least together.

`problem` says what is to be solved, `solving` solves it, `several` gives the best few answers.
Nothing here knows operators or needs a compiler.
"""
