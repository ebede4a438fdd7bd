"""Conformance suites for tuners and implementations of other packages."""
