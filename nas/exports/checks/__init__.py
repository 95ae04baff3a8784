"""Scripts that load an export with its tool in a process of its own: `python SCRIPT FOLDER EXPECTED WEIGHTS`.

EXPECTED is a file of `torch.save` with `inputs` and `outputs`. Each prints one JSON object with `difference`, the
largest difference of an output, and saves the weights that it found in the file WEIGHTS: a list of {name: tensor}. All
but `yaml` make this package invisible first.
"""
