"""Which architecture to try next. Each strategy is one file, which registers itself."""
