"""What turns candidates into kernels that can be called: each file is one way."""
