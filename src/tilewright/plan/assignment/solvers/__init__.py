"""The solvers, one file each. A module offers `SOLVER`."""
