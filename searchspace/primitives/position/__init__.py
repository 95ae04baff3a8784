"""How positions enter a model."""
