"""Packages that add to tilewright, and how a test makes them visible as if they were installed."""
