"""Implementations for NVIDIA's GPUs: each file is one way to compute workloads."""
