"""What `core_curves.py` is made of."""
