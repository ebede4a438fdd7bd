"""The planners that answer scheduling problems, a file for each."""
