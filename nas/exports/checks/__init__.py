"""Each module loads one format of an export with its tool, in a separate process that `__main__` starts.

Its `check(folder, expected)` gets the folder of the export and a mapping with `inputs` [B, T] (or [B, T, F]; two for an
encoder-decoder), `outputs` and `text`. It returns its numbers, with `difference`, the largest difference of an output,
and the weights that it found: a list of {name: tensor}, one for each part; None if the format does not show them. Only
`yaml` can import this package.
"""
