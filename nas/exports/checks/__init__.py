"""Scripts that load an export with its tool in a process of its own: `python SCRIPT FOLDER EXPECTED`.

EXPECTED is a file of `torch.save` with `inputs` and `outputs`. Each prints one JSON object with `difference`, the
largest difference of an output. All but `yaml` make this package invisible first.
"""
