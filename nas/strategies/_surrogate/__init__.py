"""The parts of the strategy `model`: points as rows of numbers, features, a Gaussian process, improvement, moves."""
