"""Torch's FLOP counter knows our operators even if it is imported after them; other tests import it first."""

import subprocess
import sys

COUNT = """
import torch
from kernels.attention.blocked import attention_blocked
from torch.utils.flop_counter import FlopCounterMode
q = torch.ones(1, 2, 8, 4)
options = dict(left=None, right=None, keys=None, bias=None, slopes=None, scale=None, rows=4, sequences=1)
with FlopCounterMode(display=False) as counter:
    attention_blocked(q, q, q, **options)
print(counter.get_total_flops())
"""


def test_a_counter_that_is_imported_later_is_told(root):
    done = subprocess.run([sys.executable, "-c", COUNT], cwd=root, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 4 * 2 * 8 * 8 * 4
