"""Experiments that explain: `explain`, `evaluate` and the studies."""
