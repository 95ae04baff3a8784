"""Commands that read a study."""
