"""The training loop, its checkpoints, and the unit of work that runs them."""
