"""One file for each page: it turns the parameters of an address into values, tables and figures."""
