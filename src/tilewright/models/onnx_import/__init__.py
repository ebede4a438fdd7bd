"""ONNX operators in our vocabulary: one module per operator group."""
