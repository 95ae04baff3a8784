"""Web pages about studies, and reports in one file. They read only the study database."""
