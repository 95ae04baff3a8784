"""Web pages about studies, and reports in one file, from the study database alone."""
