"""Small networks, as ONNX files, as graphs built by hand, and compiled in this process."""
