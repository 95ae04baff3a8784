"""The study database: the only truth about a study."""
