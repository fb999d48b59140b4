"""Programs that measure: each writes results/NAME.json, and report.py turns those into docs/benchmarks.md.

Run them from the root as modules, `python -m benchmarks.clouds`: as scripts they would take http.py here for
Python's own `http`.
"""
