"""Measurements of the library against references timed in the same run; `python -m benchmarks` prints
them.
"""
