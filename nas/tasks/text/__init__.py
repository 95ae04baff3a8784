"""Tasks made of text: language models, masked tokens, reversal, and classes of disturbed text."""
