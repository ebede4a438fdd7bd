"""Searching settings: spaces, tuners, and the loop that shares a budget over a network."""
