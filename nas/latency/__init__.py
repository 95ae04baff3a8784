"""The latency of an architecture on a device: measured as a whole, or predicted from a table of measured pieces.

runs.py        a model and the work that is timed: read a prompt, generate one token, take a training step
timing.py      times runs next to a fixed computation, which says how fast the machine is at the moment
measured.py    the milliseconds of a model, with their interval; resources.py: its memory and energy
profile.py     measures all phases of an architecture, for `nas profile`
pieces.py      an architecture as a sum of pieces, each a single block; bench.py runs a piece
predicted.py   the sum of the pieces; calibration.py: its correction factor, its error and its interval
table.py       the measurements of pieces and of architectures, in the study database; served.py: their tuned kernels
lines.py       the pieces of each line of a drawing
stored.py      the rows of the database, and predictions next to measurements; needs no torch
evidence.py    what a trial keeps of a latency, as people read it; needs no torch
"""
