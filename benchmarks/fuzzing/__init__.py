"""Hostile input by the thousand: what is changed, how it is run, and what counts as bad."""
