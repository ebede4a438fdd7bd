"""Demands into seconds: the only place that does such arithmetic.

Kernels state what they ask of a processor (`Demand`); operators and algorithms state the least they
need (`Work`). What a processor gives is assumed (`demand`) or was measured (`Peaks`).
"""
