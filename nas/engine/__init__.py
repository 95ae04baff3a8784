"""The search: the loop, the proposer, finals and verdict, plans and replay."""
