"""How blocks compose."""
