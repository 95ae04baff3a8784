"""Kernels compile for an H100 on a machine without a GPU: the interpreter accepts code that the compiler rejects.

In a process of its own, because here Triton is its interpreter. It compiles for all tests. A simulated driver loads
what was compiled, so Triton reports registers, spills and shared memory as on a device, and the tuner keeps them.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import QUICK
from tuner.measure.resources import NAMES

CODE = """
import importlib, warnings
warnings.simplefilter("ignore")
import triton
from triton import language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import cache

cache.triton_key = lambda: "this one"  # a hash of all that Triton is: half a second, for a cache that starts empty
half, full, number = "*bf16", "*fp32", "i32"


def build(name, num_warps, constants, **types):
    module, kernel = name.rsplit(".", 1)
    kernel = getattr(importlib.import_module(f"kernels.{module}_triton"), kernel)
    signature = {each: "constexpr" if each in constants else types.get(each, number) for each in kernel.arg_names}
    places = {(kernel.arg_names.index(each),): value for each, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})
    assert made.asm["cubin"] and made.metadata.shared <= 48 * 1024, name
    print(name)


tiles = {"WIDE": tl.float32, "ROWS": 2, "BLOCK": 1024}
norm = dict.fromkeys(("x_ptr", "r_ptr", "w_ptr", "b_ptr", "y_ptr", "dy_ptr", "dx_ptr", "total_ptr", "dtotal_ptr"), half)
norm |= dict.fromkeys(("scale_ptr", "mean_ptr", "dw_ptr", "db_ptr"), full)
none = dict.fromkeys
build("rowwise.rms_norm._forward", 4, {**tiles, "EPS": 1e-6}, **norm)
build("rowwise.rms_norm._backward", 4, tiles, **norm)
build("rowwise.rms_norm._backward", 32, {**tiles, "ROWS": 1, "BLOCK": 32768, "w_ptr": None, "dw_ptr": None}, **norm)
build("rowwise.layer_norm._forward", 4, {**tiles, "EPS": 1e-5}, **norm)
plain = none(("r_ptr", "w_ptr", "b_ptr", "total_ptr"))
build("rowwise.layer_norm._forward", 4, {**tiles, "EPS": 1e-5, **plain}, **norm)
build("rowwise.layer_norm._backward", 4, tiles, **norm)
build("rowwise.layer_norm._backward", 4, {**tiles, **none(("dtotal_ptr", "w_ptr", "dw_ptr", "db_ptr"))}, **norm)
build("rowwise.softmax._forward", 4, tiles, **norm)
build("rowwise.softmax._backward", 4, tiles, **norm)
stepped = {"WIDE": tl.float32, "STEP": 4096}
build("rowwise.rms_norm._forward_in_steps", 8, {**stepped, "EPS": 1e-6}, **norm)
build("rowwise.layer_norm._forward_in_steps", 8, {**stepped, "EPS": 1e-5}, **norm)
build("rowwise.layer_norm._forward_in_steps", 8, {**stepped, "EPS": 1e-5, **plain}, **norm)
build("rowwise.softmax._forward_in_steps", 8, stepped, **norm)
build("rowwise.softmax._backward_in_steps", 8, stepped, **norm)
for gate in ("silu", "gelu", "gelu_tanh", "identity"):
    gated = {"GATE": gate, "WIDE": tl.float32, "BLOCK": 1024}
    build("rowwise.gated_activation._forward", 4, gated, h_ptr=half, y_ptr=half)
    build("rowwise.gated_activation._backward", 4, gated, h_ptr=half, dy_ptr=half, dh_ptr=half)
for between, apart in ((1, 0), (2, 1)):
    turned = {**tiles, "BETWEEN": between, "APART": apart, "ROWS": 16, "BLOCK": 64}
    build("rowwise.rotary._rotate", 4, turned, x_ptr=half, y_ptr=half, cos_ptr=full, sin_ptr=full, b_stride="i64")
for smoothing in (0.0, 0.1):
    loss = {"IGNORE": -100, "SMOOTHING": smoothing, "WIDE": tl.float32, "BLOCK": 4096}
    pointers = dict(x_ptr=half, dx_ptr=half, target_ptr="*i64", loss_ptr=full, dloss_ptr=full, lse_ptr=full)
    build("rowwise.cross_entropy._forward", 8, loss, **pointers)
    build("rowwise.cross_entropy._backward", 8, loss, **pointers)
features = dict(x_ptr=half, dx_ptr=half, x_by=("i32",) * 3, dy_by=("i32",) * 3)
features |= dict.fromkeys(("w_ptr", "y_ptr", "max_ptr", "dy_ptr"), full) | dict.fromkeys(("scale", "norm"), "fp32")
for periodic in (False, True):
    drawn = {"PERIODIC": periodic, "PRECISION": "tf32x3", "WIDE": tl.float32, "ROWS": 16, "STEP": 16}
    build("linear_attention.favor_features._forward", 4, {**drawn, "BLOCK_M": 64}, **features)
    build("linear_attention.favor_features._backward", 4, {**drawn, "BLOCK_D": 16}, **features)
over_time = {"WIDE": tl.float32, "TIME": 16}
pointers = dict(x_ptr=half, w_ptr=half, y_ptr=half, dy_ptr=half, dw_ptr=full)
build("convolution.depthwise_convolution._convolve", 2, {**over_time, "K": 9, "STEP": -1, "CHANNELS": 64}, **pointers)
build("convolution.depthwise_convolution._products", 2, {**over_time, "TIME": 2, "TAPS": 8, "CHANNELS": 64}, **pointers)
build("convolution.dynamic_convolution._convolve", 2, {**over_time, "STEP": -1, "WIDTH": 64}, **pointers)
build("convolution.dynamic_convolution._products", 2, {**over_time, "TAPS": 8, "WIDTH": 64}, **pointers)
"""

USES = """
import json, pathlib, tempfile, types
import torch, tuner
from triton.runtime import driver
from benchmarks.gpu import ahead_of_time
from kernels.dispatch import registry
from kernels.dispatch.registry import Choice
from tuner.measure import resources
from tuner.measure.precompile import Elsewhere
from tuner.search.results import Results


class Driver(Elsewhere):
    # Loads kernels as a driver does, with the resources that the compiled file names, and pretends to launch them.

    @property
    def utils(self):
        return self

    def get_device_properties(self, device):
        return {"max_shared_mem": 228 * 1024}

    def load_binary(self, name, cubin, shared, device):
        use = ahead_of_time._of_nvidia(types.SimpleNamespace(asm={"cubin": cubin}))
        return 1, 1, use["registers"], use["spilled"] // 4, 1024

    def launcher_cls(self, source, metadata):
        return lambda *given: given[10].fill_(1)


driver.set_active(Driver(GPUTarget("cuda", 90, 32), 0))
found = registry.operation("softmax")
with resources.launched() as kernels:
    default = Choice.of("triton", found.implementations["triton"].default)
    assert ahead_of_time._call(found, ahead_of_time._problem(found), default) is None
print("uses", json.dumps([resources.of([each]) for each in (*kernels[:1], *kernels[-1:])]))

from own_kernel import tile

place = pathlib.Path(tempfile.mkdtemp()) / "nas.db"
configs = [triton.Config({"BLOCK": block}, num_warps=1) for block in (64, 8192)]
tuner.tune(configs=configs, key=["size"], store=place)(tile)[(1,)](torch.zeros(16), torch.zeros(16), 16)
print("tuned", json.dumps([(row.milliseconds, row.resources) for row in Results(place).rows()]))
"""

OWN = """
import triton
from triton import language as tl


@triton.jit
def tile(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < size, other=0.0)
    turned = tl.trans(tl.reshape(x - tl.max(x), [BLOCK // 16, 16]))
    columns = tl.arange(0, BLOCK // 16)
    tl.store(y_ptr + tl.arange(0, 16)[:, None] * (BLOCK // 16) + columns[None, :], turned + tl.sum(x))
"""

TILES = """
import re, subprocess, tempfile, warnings
warnings.simplefilter("ignore")
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource
from kernels.attention import kernels_triton as kernels
from kernels.attention.attention import OPERATION
from kernels.attention.problems import suited

CUDABackend.make_cubin = lambda *given: b""  # ptxas runs below, where it says what it spills

GIVEN = {"seed": "*i64", "packing": "*i32", "bias": "*bf16", "scale": "fp32", "bias_by": ("i64", "i32")}
GIVEN |= {"lse_ptr": "*fp32", "delta_ptr": "*fp32"}


def spilt(name, width, *given):
    flags = (True, False, False, "none", False, "seed" in given, True)
    tiles = suited(OPERATION.problem("cuda", "bfloat16", (2, 8, 8, 4096, 4096, width, 4096), flags))
    q, k, warps, stages = list(tiles.values())[:4] if name == "_forward" else list(tiles.values())[4:8]
    kernel = getattr(kernels, name)
    constants = {"WIDTH": width, "LEFT": False, "RIGHT": True, "PRECISION": "ieee", "BLOCK_D": width}
    constants |= {"BLOCK_Q": k, "BLOCK_K": q} if name == "_backward_keys" else {"BLOCK_Q": q, "BLOCK_K": k}
    for each in ("keys", "bounds", "bias", "slopes", "seed", "packing"):
        if each not in given:
            constants[each] = None
    signature, facts = {}, {}
    for place, each in enumerate(kernel.arg_names):
        by, pointer = each.endswith("_by"), each.endswith("_ptr")
        kind = "*bf16" if pointer else ("i64",) * 3 if by else "i32"
        signature[each] = "constexpr" if each in constants else GIVEN.get(each, kind)
        whole = [(place, axis) for axis in range(3)] if by and each != "bias_by" else [(place,)] if pointer else []
        facts |= {at: [["tt.divisibility", 16]] for at in whole}
    places = {(kernel.arg_names.index(each),): value for each, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places, attrs=facts)
    settings = {"num_warps": warps, "num_stages": stages}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=settings)
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(made.asm["ptx"])
        file.flush()
        command = [triton.knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", file.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    print("spilt", name, width, *given, re.search(r"(\\d+) bytes spill stores", said)[1])


spilt("_forward", 128)
spilt("_backward_queries", 128)
spilt("_backward_keys", 128)
spilt("_backward_keys", 64)
spilt("_backward_keys", 128, "seed")
"""


@pytest.fixture(scope="module")
def compiled(root, tmp_path_factory):
    """The lines that the process printed: kernels that compiled, then bytes that tiles spilt."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs Triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "own_kernel.py").write_text(OWN)
    path = os.pathsep.join([str(root), str(folder)])
    environment |= {"TRITON_CACHE_DIR": str(folder), "PYTHONPATH": path, "NAS_TUNING": "on"}
    code = QUICK + CODE + USES + TILES
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_every_row_wise_kernel_compiles_for_an_h100(compiled):
    assert len({line for line in compiled if line.split(" ")[0] not in ("spilt", "uses", "tuned")}) == 21


def test_the_tiles_of_attention_that_nobody_tuned_spill_no_registers(compiled):
    lines = [line for line in compiled if line.startswith("spilt")]
    assert len(lines) == 5
    assert all(line.endswith(" 0") for line in lines), lines


def test_what_our_compiled_kernels_use_is_read_of_each_launch(compiled):
    (forward, backward) = said(compiled, "uses")
    assert forward.keys() == backward.keys() == set(NAMES)
    assert 0 < forward["registers"] < backward["registers"] < 256
    assert forward["shared"] > 0 and forward["warps"] == 8 and forward["spills"] == 0


def test_what_the_configurations_of_a_users_kernel_use_is_kept_with_their_times(compiled):
    rows = said(compiled, "tuned")
    small, large = (min(rows, key=registers)[1], max(rows, key=registers)[1])
    assert len(rows) > 2, "both were measured, then some were compared"
    assert all(milliseconds > 0 and use in (small, large) for milliseconds, use in rows)
    assert small["spills"] == 0 < large["spills"]
    assert small["shared"] < large["shared"]


def registers(row):
    return row[1]["registers"]


def said(lines, word):
    (line,) = (line for line in lines if line.startswith(f"{word} "))
    return json.loads(line.removeprefix(word))
