"""The parts of the strategy `optuna`: holes as distributions, the samplers' options, a study that forgets questions."""
