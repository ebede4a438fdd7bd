"""Which kernel, in which layouts, computes each call: problems, their solvers, and plans."""
