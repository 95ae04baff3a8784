"""Code of the user: files whose text is sent to workers, and modules that workers import."""
