"""Families of operators that are predicted, one declaration each."""
