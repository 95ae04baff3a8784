"""What a model is made of, and the YAML language that describes it."""
