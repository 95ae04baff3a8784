"""The examples in CONTRIBUTING.md are true: each is run as it stands, registers itself, and works."""

import re
import subprocess
import sys

import pytest

USES = {
    "channel_gain": """
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost
model = Architecture.parse("kind: decoder\\nwidth: 8\\nvocabulary: 4\\nbody: [channel_gain]\\n")
assert sum(p.numel() for p in build(model).parameters()) == cost(model).parameters
""",
    "hill_climbing": """
from nas.strategies.contract import Result
from nas.strategies.registry import make
from searchspace.space.space import Space
space = Space.parse("kind: decoder\\nwidth: !choice [8, 16, 32]\\nvocabulary: 4\\nbody: [feed_forward]\\n")
strategy = make("hill_climbing", space, 0, 1, restart=0.0)
(first,) = strategy.ask(0)
strategy.tell(Result(0, 0, 1, first.point, (1.0,)))
assert strategy.ask(1)[0].parents == (0,)
assert len({each.point.architecture.hash for each in [first, *strategy.ask(1, 2)]}) == 3
""",
    "echo": """
from nas.tasks.registry import load
from searchspace.model.build import build
from searchspace.model.architecture import Architecture
from searchspace.contract import Context
task = load({"echo": {"length": 8}})
model = build(Architecture.parse("kind: decoder\\nwidth: 8\\nvocabulary: 8\\nbody: [feed_forward]\\n"))
batch = task.draw("train", 0, 3)
assert batch.equal(task.draw("train", 0, 3))
assert not batch.equal(task.draw("validation", 0, 3))
assert task.loss(model, batch, Context()).shape == ()
""",
    "flops_per_parameter": """
from nas.objectives.registry import make
from searchspace.model.architecture import Architecture
from searchspace.cost import Shape
model = Architecture.parse("kind: decoder\\nwidth: 8\\nvocabulary: 4\\nbody: [feed_forward]\\n")
assert make("flops_per_parameter", Shape(length=16)).evaluate(model) > 0
""",
}


@pytest.fixture(scope="module")
def examples(root):
    """The text of every example by the name of its file."""
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n# (\S+)/(\w+)\.py\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    for folder, name, _ in blocks:
        assert (root / folder).is_dir(), f"{folder} is gone"
        assert not (root / folder / f"{name}.py").exists(), f"{folder}/{name}.py exists: take another example"
    return {name: source for _, name, source in blocks}


def test_every_example_is_tried(examples):
    assert examples.keys() == USES.keys()


def test_the_examples_work_as_they_stand(examples, forked):
    """All in one process, each with names of its own."""
    code = f"""
for name, source in {[(name, examples[name] + use) for name, use in USES.items()]!r}:
    exec(compile(source, name, "exec"), {{"__name__": name}})
"""
    done = forked(code)

    assert done.returncode == 0, done.stderr


def test_examples_follow_the_house_style(examples, root):
    for name, source in examples.items():
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--stdin-filename", f"{name}.py", "-"],
            input=source,
            cwd=root,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
