"""Records whole tuning spaces and replays strategies on them."""
