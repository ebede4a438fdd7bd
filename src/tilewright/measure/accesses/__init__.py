"""How devices are reached: each file is one way."""
