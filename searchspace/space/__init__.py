"""A space of architectures: size, sampling, encoding, mutation, crossover."""
