"""What a study says: status, progress, tables."""
