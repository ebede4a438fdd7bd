"""Schedules for NVIDIA's GPUs: each file lowers the implementation of the same name."""
