"""What is measured side by side with other systems; `python -m benchmarks.NAME [--json]`."""
