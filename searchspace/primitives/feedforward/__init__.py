"""Feed-forward blocks: each position is computed independently of the others."""
