"""Models of PyTorch and transformers, exported to ONNX by a process of their own."""
