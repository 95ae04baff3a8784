"""Recurrent blocks: a state is passed from one position to the next."""
