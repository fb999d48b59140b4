"""Benchmarks: each program writes results/NAME.json, and report.py renders them as docs/benchmarks.md.

Run them from the root as modules, `python -m benchmarks.clouds`: scripts would import http.py instead of the
standard library's `http`.
"""
