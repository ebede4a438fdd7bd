"""Workloads, and one kernel built, run and compared with numpy."""
