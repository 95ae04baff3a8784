"""On a GPU, outputs and gradients of every implementation of every operation equal the definition.

Problems are the named ones of a CPU, which a float64 definition is quick on, in single and half precision; of each
implementation the documented configuration is run and that suited to the problem, of Triton's also two from the far
ends of the space.
"""

from dataclasses import replace

import pytest
import torch

from kernels.dispatch import registry, tuned
from tuner.measure import correctness
from tuner.search import candidates

DEVICE = "cuda"
pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the compiler that `compiled` loads


def problems(operation, dtype, device=DEVICE):
    """The problems of a CPU on the GPU; one for each kind of flags."""
    found = {}
    for problem in operation.problems("cpu").values():
        found.setdefault(problem.flags, replace(problem, device=device, dtype=dtype))
    return list(found.values())


def choices(implementation, problem):
    """A few configurations that can run the problem."""
    space = candidates.space(implementation, problem)
    tiled = implementation.name == "triton"
    ends = [] if space is None or not tiled else [space.configuration(0), space.configuration(len(space) - 1)]
    several = [implementation.default, implementation.default_for(problem), *ends]
    return list(dict.fromkeys(candidates.choice(implementation, each) for each in several))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", list(registry.operations()))
def test_every_implementation_gives_what_the_definition_gives(name, dtype):
    assert wrong(registry.operation(name), dtype, DEVICE) == {}


def wrong(operation, dtype, device):
    """The differences, by problem and choice."""
    found = {}
    for problem in problems(operation, dtype, device):
        trial = correctness.trial(operation, problem, 0)
        learns = any(gradient is not None for gradient in trial.gradients)
        for implementation in candidates.implementations(operation, problem):
            if (learns and not implementation.gradients) or (implementation.name == "compiled" and dtype != "float32"):
                continue  # compiling is slow, and does the same for each dtype
            for choice in choices(implementation, problem):
                try:
                    operation.check(choice, problem)
                except ValueError:  # the default may break a constraint of a small problem
                    continue
                reason = correctness.differences(trial, launcher(operation, problem, choice), getattr(torch, dtype))
                if reason:
                    found[f"{problem}: {choice}"] = reason
    return found


def launcher(operation, problem, choice):
    return lambda *args, **kwargs: tuned.launch(operation, problem, choice, *args, **kwargs)


def test_the_check_itself_works_where_there_is_no_gpu():
    operation = registry.operation("softmax")
    quick = {name: each for name, each in operation.implementations.items() if name != "compiled"}
    operation = replace(operation, implementations=quick)
    assert wrong(operation, "float32", "cpu") == {}
    broken = replace(operation, reference=lambda x: operation.reference(x) * 1.01)
    assert len(wrong(broken, "float32", "cpu")) >= 2
