"""Commands that plan, run or drive a search."""
