"""Tables of architectures that were really trained, to judge strategies, schedulers and probes without training."""
