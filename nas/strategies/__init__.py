"""Who to try next. Each strategy is one file, found by itself."""
