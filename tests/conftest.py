"""What every test stands on: few threads, Triton without a GPU, and repeatable property tests."""

import atexit
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# Read when torch, numpy and Triton are imported, which nothing above does. Each pytest worker uses one core; where
# there is no GPU Triton's kernels run in its interpreter.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# Ray's workers are as urgent as the tests. Else they wait for all other tests, and a worker of pytest waits for them.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
os.environ["RAY_prestart_worker_first_driver"] = "0"  # noqa: SIM112  # no workers that no test uses
# What somebody tuned on this machine must not decide which code is tested: no table is at that place.
os.environ["NAS_KERNEL_TABLES"] = str(Path(__file__).parent / "no-tables")
os.environ.pop("NAS_KERNEL_LOCK", None)
# Neither read nor write what another run or process measured, tuned or cached on this machine.
_own = tempfile.mkdtemp(prefix="tessera-tests-")
atexit.register(shutil.rmtree, _own, ignore_errors=True)
os.environ["XDG_DATA_HOME"] = _own
os.environ["HF_MODULES_CACHE"] = f"{_own}/huggingface"  # read when transformers is imported
atexit.register(gc.freeze)  # or each process would search all that it holds for garbage when it ends
os.environ["HF_HUB_OFFLINE"] = "1"
# To ask whether there is a GPU must not start CUDA here: it cannot be used in a fork then.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

# New objects until Python searches for garbage, 700 by default. Models and rows are thousands of objects that live on.
GARBAGE = 20_000
# Python with which a new process begins: what it imports is no garbage, and to search torch for some takes 0.6 s.
QUICK = "import atexit, gc; gc.disable(); atexit.register(gc.freeze)\n"
# Python that makes a process forget our packages.
FORGET = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] in ("nas", "searchspace", "kernels", "tuner")]:
    del sys.modules[name]
"""
ROOT = Path(__file__).resolve().parent.parent

# No deadline and no complaint about slow generation: the machine is shared. A failure must be there again tomorrow, so
# the examples are the same every time; NAS_EXPLORE=1 looks at new ones, and at four times as many.
settings.register_profile(
    "house",
    deadline=None,
    max_examples=100 if os.environ.get("NAS_EXPLORE") else 25,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not os.environ.get("NAS_EXPLORE"),
)
settings.load_profile("house")
# Hypothesis would read the constants of all source files that are imported, so the examples would depend on which tests
# ran before. If a version lacks this function, it does.
if not os.environ.get("NAS_EXPLORE") and hasattr(providers, "is_local_module_file"):
    providers.is_local_module_file = lambda path: False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a GPU say so without one."""
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if marked:
        import torch

        if not torch.cuda.is_available():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_collection_finish() -> None:
    """What was imported for thousands of tests is not searched for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE, *gc.get_threshold()[1:])
    if {"nas.finals.speed", "nas.latency.timing"} <= sys.modules.keys():
        shorten_measurements()


@pytest.fixture(autouse=True, scope="module")
def no_file_leaves_blocks(forget_own_blocks) -> Iterator[None]:
    """Blocks that files of users register in this process are those of one file of tests."""
    yield
    forget_own_blocks()


@pytest.fixture(scope="session")
def forget_own_blocks() -> Callable[[], None]:
    """Unregisters the blocks that files of users have registered in this process."""

    def forget_all() -> None:
        for name in [name for name in sys.modules if name.startswith("nas_own_blocks")]:
            from searchspace.registry import forget

            forget(name)
            del sys.modules[name]

    return forget_all


def shorten_measurements() -> None:
    """Let finals train in one turn, and the gauge of latencies take a tenth of its time: no test judges times.

    The gauge runs four times a sample. Its own test runs all of it.
    """
    from nas.finals import speed
    from nas.latency import timing

    speed.TURNS = 1
    timing.LAUNCHES, timing.ROWWISE, timing.PRODUCTS = 6, 1, 0


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def forked() -> Callable[..., subprocess.CompletedProcess]:
    """`forked(code, *arguments, folder=..., **environment)`: what Python code does and says in a process of its own.

    The process is a fork of this one, because to import all modules again takes several seconds.
    """

    def run(code: str, *arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads
                process = os.fork()
            if process == 0:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os.chdir(folder or Path.cwd())
                os.environ.update(environment)
                sys.argv = ["-c", *arguments]
                _run_and_exit(code)
            ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            said = [file.seek(0) or file.read() for file in (out, err)]
        return subprocess.CompletedProcess(code, ended, *said)

    return run


def _run_and_exit(code: str) -> None:
    """What `python -c` does."""
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))
    warnings.simplefilter("default")
    ended = 1
    try:
        exec(code, {"__name__": "__main__"})
        ended = 0
    except SystemExit as error:
        ended = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(ended)


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """`shared_data("nas-bench-macro")`: that folder of recorded data; skips the test where it is not at hand.

    The data are too large for the repository. They are looked for in the folder that NAS_DATA names, else in
    `shared/data` beside the checkout.
    """
    folder = Path(os.environ.get("NAS_DATA") or ROOT.parent / "shared" / "data")

    def find(name: str) -> Path:
        path = folder / name
        if not path.exists():
            pytest.skip(f"needs the recorded data {name!r}; set NAS_DATA to the folder that holds it")
        return path

    return find


@pytest.fixture
def only_pytorch():
    """`with only_pytorch() as check:` fails if an operator runs that is not PyTorch's own.

    Inside, `check(*outputs)` fails if a gradient of the outputs passes through an autograd function of ours.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recording(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.foreign = set()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.namespace not in ("aten", "prims"):
                self.foreign.add(str(function))
            return function(*args, **(kwargs or {}))

    def check(*outputs):
        waiting, seen = [out.grad_fn for out in outputs], set()
        while waiting:
            node = waiting.pop()
            if node is not None and node not in seen:
                seen.add(node)
                made_by = getattr(node, "_forward_cls", None)  # of an autograd function
                assert made_by is None or made_by.__module__.startswith("torch."), made_by
                waiting += [function for function, _ in node.next_functions]

    @contextmanager
    def recorded():
        with Recording() as recording:
            yield check
        assert not recording.foreign

    return recorded
