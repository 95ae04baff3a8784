"""The search file: its schema, its reader, and the parts that it names."""
