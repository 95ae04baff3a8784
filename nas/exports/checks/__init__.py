"""Each module loads one format of an export with its tool, in a process of its own that `__main__` makes.

Its `check(folder, expected)` gets the folder of the export and a mapping with `inputs` [B, T] (or [B, T, F]; two for an
encoder-decoder), `outputs` and `text`. It gives its numbers, with `difference`, the largest difference of an output,
and the weights that it found: a list of {name: tensor}, one for each part; None if the format shows none. All but
`yaml` cannot import this package.
"""
