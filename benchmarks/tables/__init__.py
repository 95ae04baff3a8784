"""Tables of trained architectures, to evaluate strategies, schedulers and probes without training."""
