"""How long an architecture takes on a device: measured as a whole, or composed from a table of measured pieces.

runs.py        a model with something to do: reading a prompt, generating one token, taking a training step
measured.py    milliseconds of that, with their interval
pieces.py      an architecture as a sum of pieces, each a block alone; bench.py runs them
table.py       what was measured of pieces and of architectures, kept in the study database
predicted.py   the sum, corrected by what it was found to be wrong by, and how far that can be trusted
"""
