"""Statistics of results, without torch and without the database."""
