"""Reports in one file: a page to send, or Markdown for a pull request."""
