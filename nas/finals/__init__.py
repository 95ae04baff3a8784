"""The finals: how the best architectures are compared with baselines, and what may be said about the result."""
