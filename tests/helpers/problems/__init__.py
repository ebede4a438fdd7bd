"""Small problems for solvers."""
