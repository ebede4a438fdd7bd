"""The solvers."""
