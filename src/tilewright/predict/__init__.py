"""Predictors: how long an operator takes, and what it draws, before it runs."""
