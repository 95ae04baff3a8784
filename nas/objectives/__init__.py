"""What to score. Each objective is one file, found by itself."""
