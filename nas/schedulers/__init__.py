"""How long to train what was proposed. Each scheduler is one file, found by itself."""
