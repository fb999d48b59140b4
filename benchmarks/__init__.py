"""Benchmarks: each program writes results/NAME.json, rendered by report.py.

Run them from the root as modules: `python -m benchmarks.clouds`.
"""
