"""Keys that are often written in the wrong part of a search file, and where they belong."""

from __future__ import annotations

from searchspace.suggestions import SYNONYMS

TOP = "the search file"  # the part that holds all others
RECIPE = {  # an example of each key
    "learning_rate": "1e-3", "weight_decay": "0.1", "betas": "[0.9, 0.95]", "warmup": "0.1", "floor": "0.1",
    "optimiser": "adamw", "criterion": "cross_entropy", "clip": "1.0", "precision": "bfloat16",
}  # fmt: skip
RUNNER = {"workers": 2, "cpus": 1, "gpus": 1, "address": "auto"}
TASK = {"batch": "32", "data": "texts/*.txt", "length": "256"}
SPACE = ("width", "heads", "times", "vocabulary", "kind", "body")
LIMITS = {"unit_seconds": 600, "attempts": 4}
STEPS = "as in `scheduler: {full: {steps: 1000}}`"

PLACES = {  # name -> (the part that it belongs to, the end of a message)
    **{name: ("recipe", f"it belongs to `recipe: {{{name}: {value}}}`") for name, value in RECIPE.items()},
    **{name: ("runner", f"it belongs to `runner: {{ray: {{{name}: {value}}}}}`") for name, value in RUNNER.items()},
    **{name: ("space", f"it is the field `{name}` of the architecture or its blocks, in `space`") for name in SPACE},
    **{name: ("limits", f"it belongs to `limits: {{{name}: {value}}}`") for name, value in LIMITS.items()},
    **{
        name: ("task", f"it is an option of the task, as in `task: {{language_model: {{{name}: {value}}}}}`")
        for name, value in TASK.items()
    },
    "batch_size": ("task", "batch is an option of the task, as in `task: {language_model: {batch: 32}}`"),
    "steps": ("scheduler", f"it is an option of the scheduler, {STEPS}"),
    "max_steps": ("scheduler", f"steps is an option of the scheduler, {STEPS}"),
    "epochs": ("scheduler", f"training is counted in steps, {STEPS}, and a search in `budget: {{trials: 50}}`"),
    "rungs": ("scheduler", "it is an option of the scheduler, as in `scheduler: {halving: {rungs: [40, 120, 360]}}`"),
    "brackets": ("scheduler", "it is an option of the scheduler `hyperband`"),
    "population": (
        "strategy",
        "it is an option, as in `strategy: {aging_evolution: {population: 50}}`",
    ),
    "sampler": ("strategy", "it is an option, as in `strategy: {optuna: {sampler: TPESampler}}`"),
    "top": ("finals", "it belongs to `finals: {top: 3}`"),
    "minutes": ("budget", "it belongs to `budget: {trials: 50, minutes: 60}`"),
    "trials": ("budget", "it belongs to `budget: {trials: 50}`"),
    "seed": (TOP, "it is a key of the search file itself"),
    "device": (TOP, "it is a key of the search file itself"),
    "dropout": ("space", "it is a field of the architecture, in the space"),
    "label_smoothing": (
        "criterion",
        "it is an option of a criterion, as in `recipe: {criterion: {cross_entropy: {label_smoothing: 0.1}}}`",
    ),
    "momentum": (
        "optimiser",
        "it is an option of an optimiser, as in `recipe: {optimiser: {sgd: {momentum: 0.9}}}`",
    ),
    "nesterov": (
        "optimiser",
        "it is an option of an optimiser, as in `recipe: {optimiser: {sgd: {nesterov: true}}}`",
    ),
}


def elsewhere(name: str, here: str) -> str:
    """' It belongs to ...' for a key in the part `here` that is known to belong to another part; "" for other keys."""
    part, text = PLACES.get(name) or PLACES.get(SYNONYMS.get(name, ""), (here, ""))
    return "" if part == here else f" {text[0].upper()}{text[1:]}."
