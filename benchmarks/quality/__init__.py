"""Search quality on recorded tables, see `benchmarks.quality.__main__`."""
