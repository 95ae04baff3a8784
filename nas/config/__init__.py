"""The search file: its schema, its reader, and the factory that builds the parts it names."""
