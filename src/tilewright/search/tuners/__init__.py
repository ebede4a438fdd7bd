"""Tuners: each file asks for candidates and is told their outcomes."""
