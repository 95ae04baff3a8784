"""What several benchmarks share: clocks, tables, published models."""
