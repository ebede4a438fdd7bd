"""What runs where, beside what: scheduling problems, planners that answer them, a simulator.

`problem` says what is to be planned, `schedule` what an answer is, what it takes and when it breaks
a limit, `planning` asks a planner. Nothing here knows operators, compiles or measures.
"""
