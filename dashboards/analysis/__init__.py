"""What the pages compute from many trials: columns, thinning, history, importance of holes, lineage."""
