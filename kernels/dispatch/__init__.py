"""Which implementation serves an operation: the registry of operations, tables of tuned choices, FLOP counts."""
