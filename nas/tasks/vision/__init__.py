"""Tasks made of images."""
