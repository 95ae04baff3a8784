"""One page a file: from what the address asks to values, tables and figures."""
