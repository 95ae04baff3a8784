"""An architecture: canonical form, hash, module, costs and pictures."""
