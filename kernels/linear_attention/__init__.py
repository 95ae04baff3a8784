"""Linear attention and its feature maps."""
