"""What ONNX Runtime is made of, made up."""
