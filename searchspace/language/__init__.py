"""The YAML language: documents, trees, holes, references, and errors with line numbers."""
