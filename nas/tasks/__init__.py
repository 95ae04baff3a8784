"""What to train on. Each task is one file, found by itself."""
