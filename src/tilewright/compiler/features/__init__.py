"""Features of lowered kernels, for models that learn what makes a kernel fast."""
