"""Exhaustive sweeps of settings, and tuners replayed on them."""
