"""A second process, which the tests of this folder share: it takes seconds to import torch."""

import json
import subprocess
import sys

import pytest

CODE = """
import json
from kernels.dispatch.device import fingerprint
found = {"key": fingerprint().key}

import torch
from kernels.attention.blocked import attention_blocked
from torch.utils.flop_counter import FlopCounterMode
q = torch.ones(1, 2, 8, 4)
options = dict(left=None, right=None, keys=None, bias=None, slopes=None, scale=None, rows=4, sequences=1)
with FlopCounterMode(display=False) as counter:
    attention_blocked(q, q, q, **options)
found["flops"] = counter.get_total_flops()
print(json.dumps(found))
"""


@pytest.fixture(scope="session")
def another_process(root):
    """What a fresh process finds: `key` of this device, `flops` of attention, imported before torch's counter."""
    done = subprocess.run([sys.executable, "-c", CODE], cwd=root, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
