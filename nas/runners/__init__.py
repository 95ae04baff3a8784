"""Where units of work run."""
