"""Modules of Relax become ONNX models, in a process of their own: `python -m` runs it."""
