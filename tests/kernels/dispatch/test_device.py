import json
from dataclasses import replace

import pytest
import torch

from kernels.dispatch.device import fingerprint, parse_cpuinfo, resolve

X86 = """processor\t: 0
model name\t: AMD EPYC 9654 96-Core Processor
flags\t\t: fpu sse avx2 avx512f

processor\t: 1
model name\t: another
flags\t\t: fpu
"""

ARM = """processor\t: 0
Features\t: fp asimd sve
CPU implementer\t: 0x41
CPU variant\t: 0x1
CPU part\t: 0xd40
"""


def test_names_this_processor_and_its_software():
    device = fingerprint("cpu")

    assert device.kind == "cpu"
    assert device.name
    assert device.units >= 1
    assert device.memory_bytes > 0
    assert device.torch == torch.__version__


@pytest.mark.parametrize("name", ["name", "capability", "units", "features", "driver", "torch", "triton"])
def test_the_key_changes_with_what_changes_speed(name):
    assert replace(fingerprint(), **{name: "another"}).key != fingerprint().key


def test_the_key_does_not_change_with_memory_that_firmware_took():
    device = fingerprint()
    assert replace(device, memory_bytes=device.memory_bytes - 4096).key == device.key


def test_becomes_plain_data_with_its_key():
    device = fingerprint()
    data = json.loads(json.dumps(device.to_dict()))

    assert data["key"] == device.key
    assert data["units"] == device.units


def test_reads_the_first_processor_of_an_x86_machine():
    assert parse_cpuinfo(X86) == ("AMD EPYC 9654 96-Core Processor", ["fpu", "sse", "avx2", "avx512f"])


def test_names_an_arm_processor_by_its_numbers():
    name, flags = parse_cpuinfo(ARM)

    assert name.endswith("0x41 0xd40 0x1")
    assert flags == ["fp", "asimd", "sve"]


@pytest.mark.parametrize("device", ["gpu", "tpu:0", "mps", ""])
def test_rejects_a_device_of_another_kind(device):
    with pytest.raises(ValueError, match="must be 'cpu', 'cuda' or 'cuda:N'"):
        resolve(device)


def test_rejects_a_gpu_that_is_not_here():
    with pytest.raises(ValueError, match=r"'cuda:99' is not available: torch .* sees \d+ CUDA device"):
        fingerprint("cuda:99")


@pytest.mark.cuda
def test_names_the_gpu_and_its_driver():
    device = fingerprint("cuda")

    assert device.kind == "cuda"
    assert device.name == torch.cuda.get_device_name(0)
    assert device.units > 0
    assert device.driver
