"""How long to train each trial. Each scheduler is one file, which registers itself."""
