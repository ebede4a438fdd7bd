"""CUDA for Python, made up."""
