"""What every test stands on: few threads, Triton without a GPU, and repeatable property tests."""

import atexit
import compileall
import gc
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.workers import (
    forget_this_machine,
    keep_files_in_memory,
    pytest_addoption,
    pytest_cmdline_main,
    pytest_runtestloop,
)
from tuner.measure import heap

__all__ = ["pytest_addoption", "pytest_cmdline_main", "pytest_runtestloop"]  # hooks of pytest

# Read when torch, numpy and Triton are imported, which nothing above does. Each pytest worker uses one core; where
# there is no GPU Triton's kernels run in its interpreter.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# Ray's workers are as urgent as the tests. Else they wait for all other tests, and a worker of pytest waits for them.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
os.environ["RAY_prestart_worker_first_driver"] = "0"  # noqa: SIM112  # no workers that no test uses
# Here and in processes that are started from here: glibc keeps the memory of tensors for the next ones. Otherwise it
# returns it to the kernel, and each page that is used again costs a fault.
heap.keep()
for variable in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
    os.environ.setdefault(variable, str(256 * 2**20))
# What somebody tuned on this machine must not decide which code is tested: no table is at that place.
os.environ["NAS_KERNEL_TABLES"] = str(Path(__file__).parent / "no-tables")
os.environ.pop("NAS_KERNEL_LOCK", None)
keep_files_in_memory()
forget_this_machine()
atexit.register(gc.freeze)  # or each process would search all that it holds for garbage when it ends
os.environ["HF_HUB_OFFLINE"] = "1"
# To ask whether there is a GPU must not start CUDA here: it cannot be used in a fork then.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

# New objects until Python searches for garbage, 700 by default. Models and rows are thousands of objects that live on.
GARBAGE = 20_000
LIBRARY = 5  # modules; those of our own that are imported later are fewer, and one search takes 10 ms
# Python with which a new process begins: what it imports is no garbage, and to search torch for some takes 0.6 s.
QUICK = "import atexit, gc; gc.disable(); atexit.register(gc.freeze)\n"
# Python that makes a process forget our packages.
FORGET = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] in ("nas", "searchspace", "kernels", "tuner")]:
    del sys.modules[name]
"""
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("nas", "searchspace", "kernels", "tuner", "dashboards", "benchmarks")

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
# Hypothesis would read the constants of all source files that are imported: in each worker, for 2.5 s on a fresh
# clone. The examples would depend on which tests ran before. If a version lacks this function, it does.
if not os.environ.get("NAS_EXPLORE") and hasattr(providers, "is_local_module_file"):
    providers.is_local_module_file = lambda path: False


# Files that wait a lot, the longest first: `tests.workers` runs them beside the others.
WAITING = ("test_chaos.py", "test_browser.py", "test_ray_restart.py", "test_interrupt.py", "test_isolation.py")
WAITING += ("test_races.py", "test_leases.py", "test_ask.py", "test_process_runner.py", "test_connection.py")
# Files that take long start first, so that none runs alone at the end.
BUSY = ("test_contract.py", "test_graphs.py", "test_ray.py", "test_ahead_of_time.py", "test_tutorial.py")
BUSY += ("test_operations.py", "test_studies.py", "test_trust.py", "test_children.py", "test_every_strategy.py")
BUSY += ("test_huggingface.py", "test_loop.py")
LONGEST = WAITING + BUSY


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first, those that wait are marked, and tests that need a GPU say so without one."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
    for item in items:
        if item.path.name in WAITING:
            item.add_marker("waits")
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if marked:
        import torch

        if not torch.cuda.is_available():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """On a fresh clone, a second process compiles all files, the last one first, while this one collects the tests.

    To compile them takes 8 s of CPU. If pytest lacks what is used here, this process does it alone.
    """
    wanted = session.config.option.workers and not sys.dont_write_bytecode and hasattr(rewrite, "_rewrite_test")
    if wanted and os.fork() == 0:
        try:
            _compile(session)
        finally:
            os._exit(0)


def _compile(session: pytest.Session) -> None:
    """Write the bytecode of every file that has none."""
    for path in sorted(Path(__file__).parent.rglob("test_*.py"), reverse=True):
        kept = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(path, kept) is None and rewrite.try_makedirs(kept.parent):
            found, code = rewrite._rewrite_test(path, session.config)
            rewrite._write_pyc(session.config.stash[rewrite.assertstate_key], code, found, kept)
    for package in reversed(PACKAGES):
        for path in sorted((ROOT / package).rglob("*.py"), reverse=True):
            compileall.compile_file(path, quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Do not search thousands of tests for garbage again and again, neither while they are collected nor afterwards.

    While they are collected, the searches take a third of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # before it is on, or it would search everything first
        gc.set_threshold(GARBAGE, *gc.get_threshold()[1:])
        gc.enable()
        if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") == "1":
            quicken_the_interpreter()
        if {"nas.finals.speed", "nas.latency.gauge"} <= sys.modules.keys():
            shorten_measurements()


@pytest.fixture(autouse=True, scope="module")
def what_a_file_leaves_is_spared() -> Iterator[None]:
    """What the tests of a file leave in memory stays, so no later collection searches it."""
    yield
    _spare_what_stays()


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


@pytest.fixture(autouse=True)
def what_a_test_imports_is_spared() -> Iterator[None]:
    """Libraries that a test imports stay too, and the next test may collect often: each measurement starts with it."""
    before = len(sys.modules)
    yield
    if len(sys.modules) >= before + LIBRARY:
        _spare_what_stays()


def _spare_what_stays() -> None:
    gc.collect()
    gc.freeze()


def shorten_measurements() -> None:
    """Let finals train in one turn, and the gauge of latencies take a tenth of its time: no test judges times.

    The gauge runs four times a sample. Its own test runs all of it.
    """
    from nas.finals import speed
    from nas.latency import gauge

    speed.TURNS = 1
    gauge.LAUNCHES, gauge.ROWWISE, gauge.PRODUCTS = 6, 1, 0


def quicken_the_interpreter() -> None:
    """Let Triton's interpreter replace the functions of `triton.language` once, and look each dtype up once.

    It replaces them again for every launch of a kernel, and for every call of a function inside a kernel, which takes a
    third of its time. If a version of Triton lacks these two functions, nothing is changed.
    """
    from triton.runtime import interpreter

    if hasattr(interpreter, "_patch_lang"):
        interpreter._patch_lang = _once(interpreter._patch_lang, interpreter.tl)
    if hasattr(interpreter, "_get_np_dtype"):
        look_up, found = interpreter._get_np_dtype, {}

        def known(dtype):
            name = dtype.scalar.name  # a block has the dtype of its elements
            if name not in found:
                found[name] = look_up(dtype)
            return found[name]

        interpreter._get_np_dtype = known
    _without_idle_checks(interpreter)
    if {"block_type", "tensor", "tuple", "constexpr", "validate_block_shape"} <= vars(interpreter.tl.core).keys():
        _make_each_shape_once(interpreter.tl.core)


def _without_idle_checks(interpreter) -> None:
    """Do not compute whether each sum and product of integers overflows.

    Without `debug`, Triton's interpreter ignores the answer, which takes a sixth of its time.
    """
    options = getattr(getattr(interpreter, "interpreter_builder", None), "options", None)
    if getattr(options, "debug", True) is False and getattr(options, "sanitize_overflow", False):
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)


def _make_each_shape_once(core) -> None:
    """Let blocks of one shape share its description. Triton makes one for each result, in a third of its time."""
    described: dict[tuple[int, ...], tuple] = {}  # sizes -> what describes a type, then what describes a tensor
    make_type, make_tensor = core.block_type.__init__, core.tensor.__init__

    def of_type(self, element_ty, shape):
        sizes = tuple([each.value if isinstance(each, core.constexpr) else each for each in shape])
        if sizes not in described or {*map(type, sizes)} != {int}:  # as 16 equals a 16 of NumPy
            make_type(self, element_ty, shape)  # it rejects invalid shapes
            constants = core.tuple([core.constexpr(each) for each in sizes])
            described[sizes] = self.shape, self.numel, str(self.shape), constants, core.constexpr(self.numel)
        self.element_ty = element_ty
        self.shape, self.numel, text, *self.of_tensor = described[sizes]
        self.name = f"<{text}, {element_ty}>"

    def of_tensor(self, handle, type):
        if not hasattr(type, "of_tensor"):  # a number
            make_tensor(self, handle, type)
            return
        self.handle, self.type, self.dtype = handle, type, type.element_ty
        self.shape, self.numel = type.of_tensor

    core.block_type.__init__, core.tensor.__init__ = of_type, of_tensor


def _once(replace: Callable, language) -> Callable:
    """`replace`, called once for each of the two modules that the functions of a kernel may name."""
    of_function: dict[Callable, set] = {}
    replaced: set = set()

    def replace_once(function):
        if function not in of_function:
            seen = [id(value) for value in function.__globals__.values()]
            of_function[function] = {module for module in (language, language.core) if id(module) in seen}
        if not of_function[function] <= replaced:
            replace(function)
            replaced.update(of_function[function])
        return SimpleNamespace(restore=lambda: None)

    return replace_once


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


@pytest.fixture
def checks_in_forks(forked, monkeypatch) -> None:
    """`nas export` runs each check in a fork of this process, because to import the libraries again takes seconds.

    Other tests run the checks in a new process.
    """
    from nas.exports import checking

    def run(command, *, env, **_):
        script, folder, place, seconds, *names = command[command.index("-B") + 1 :]
        for name in names:
            code = f"import runpy; runpy.run_path({script!r}, run_name='__main__')"
            hide = "" if name == "yaml" else FORGET
            done = forked(hide + code, folder, place, seconds, name, PYTHONPATH=env["PYTHONPATH"])
            assert done.returncode == 0, done.stderr

    monkeypatch.setattr(checking, "subprocess", SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL))


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
