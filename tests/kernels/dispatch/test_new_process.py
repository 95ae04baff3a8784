"""Two answers of a new process: in this one, other tests have imported everything."""

import json
import subprocess
import sys

from kernels.dispatch.device import fingerprint
from tests.conftest import QUICK

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


def test_the_key_of_the_device_is_the_same_and_a_counter_that_is_imported_later_knows_our_operators(root):
    done = subprocess.run([sys.executable, "-c", QUICK + CODE], cwd=root, capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == {"key": fingerprint().key, "flops": 4 * 2 * 8 * 8 * 4}
