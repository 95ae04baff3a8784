"""Benchmarks that compare Tessera with other systems in one run: `python -m benchmarks.NAME [--json]`."""
