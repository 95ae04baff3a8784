"""The latency of an architecture on a device: measured as a whole, or predicted from a table of measured pieces.

runs.py        a model and the work that is timed: read a prompt, generate one token, take a training step
measured.py    its milliseconds, with their interval
profile.py     measures all phases of an architecture, for `nas profile`
pieces.py      an architecture as a sum of pieces, each a single block; bench.py runs a piece
chain.py       pieces timed one after another, as in a model; optimiser.py: the optimiser's step
table.py       the measurements of pieces and of architectures, in the study database
code.py        a hash of the code that they depend on; served.py: the tuned kernels that they depend on
lines.py       the pieces of each line of a drawing
stored.py      the rows of the database, and predictions next to measurements; needs no torch
evidence.py    what a trial keeps of a latency, as people read it; needs no torch
predicted.py   the sum of the pieces; calibration.py: its correction factor, its error and its interval
"""
