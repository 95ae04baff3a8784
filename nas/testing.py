"""Loads published weights into architectures of the zoo, for tests of ours and of users.

`load_published` takes the state dict of a public implementation and returns our module, which computes the same
numbers. It needs only torch: a state dict maps names to tensors and may come from a file or a module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nas.errors import UsageError
from nas.published import LAYOUTS
from nas.published.layout import Layout, Rule, Weights
from searchspace import zoo
from searchspace.errors import nearest
from searchspace.model.architecture import Architecture
from searchspace.model.build import build


def load_published(zoo_name: str, state_dict: Mapping[str, Tensor], layout: str, **fields: Any) -> nn.Module:
    """The architecture `zoo_name` with the weights of `state_dict`, in evaluation mode and in their dtype.

    Its sizes are those of the weights; see `published_architecture` for `fields`. Raises UsageError that lists every
    weight without a place, every parameter without a weight, and every pair with different shapes.
    """
    known = _layout(layout, zoo_name)
    weights = _weights(known, state_dict)
    module = build(_architecture(zoo_name, weights, known, fields))
    _fill(module, weights, known)
    return module.eval()


def published_architecture(zoo_name: str, state_dict: Mapping[str, Tensor], layout: str, **fields: Any) -> Architecture:
    """The architecture `zoo_name` in the sizes of the weights.

    `fields` give what shapes do not determine. Each is set in every block that has it, such as heads=4 or eps=1e-5, or
    only in blocks of one name: `**{"feed_forward.activation": "relu"}`. The layer before the logits of tokens has
    those of the blocks. They override what the weights determine. Give
    the number of heads unless the width is that of the zoo. Raises UsageError if the weights do not fit.
    """
    known = _layout(layout, zoo_name)
    return _architecture(zoo_name, _weights(known, state_dict), known, fields)


def _layout(name: str, zoo_name: str) -> Layout:
    if name not in LAYOUTS:
        raise UsageError(f"No layout is called {name!r}.{nearest(name, LAYOUTS)} Known: {', '.join(LAYOUTS)}.")
    if zoo_name not in (known := LAYOUTS[name].zoo):
        raise UsageError(f"The layout {name!r} is one of {' or '.join(known)}, not of {zoo_name!r}.")
    return LAYOUTS[name]


def _weights(layout: Layout, state_dict: Mapping[str, Tensor]) -> Weights:
    weights = layout.weights(state_dict)
    for copy, name in layout.tied.items():
        if copy not in weights:
            continue
        value = weights.pop(copy)
        if not weights.setdefault(name, value).equal(value):  # a file may hold only one of the two
            raise UsageError(
                f"{copy!r} differs from {name!r}, but here they are one table; a model that has untied them cannot be "
                "loaded."
            )
    return weights


def _architecture(zoo_name: str, weights: Weights, layout: Layout, fields: Mapping[str, Any]) -> Architecture:
    try:
        root = zoo.tree(zoo_name)
        read = layout.fields(weights)
        _check_unread(layout, root.fields["width"], read["width"], fields)
        read |= _of_head(layout, read, fields)
        own = {key: value for key, value in read.items() if key not in fields}
        root = zoo.changed(layout.reshape(root, weights), own)
        architecture = Architecture.from_block(zoo.changed(root, fields))
        _ = architecture.configured  # raises if its values do not fit together
    except ValueError as error:
        raise UsageError(f"{zoo_name} does not fit these weights: {error}") from None
    return architecture


def _of_head(layout: Layout, read: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the hidden layer before the logits of tokens, which the given ones of the blocks determine."""
    if read.get("encoder.head") != "hidden" or not read["encoder.tokens"]:
        return {}
    given = {name.rpartition(".")[2]: value for name, value in fields.items()}
    return {f"encoder.{own}": given[name] for name, own in layout.head.items() if name in given and own not in given}


def _check_unread(layout: Layout, published: Any, width: int, fields: Mapping[str, Any]) -> None:
    missing = [name for name in layout.unread if name not in fields]
    if missing and width != published:
        raise ValueError(
            f"they are {width} wide, not {published}, and no shape tells {' and '.join(missing)}; "
            f"give {', '.join(f'{name}=...' for name in missing)}."
        )


@torch.no_grad()
def _fill(module: nn.Module, weights: Weights, layout: Layout) -> None:
    rules: dict[str, Rule] = {}
    for rule in layout.rules(weights):
        # Heads share names; the head whose weights exist is meant.
        if rule.target not in rules or all(source in weights for source in rule.sources):
            rules[rule.target] = rule
    problems: list[str] = []
    used: set[str] = set()
    for name, parameter in module.named_parameters():
        if name not in rules or any(source not in weights for source in rules[name].sources):
            problems.append(_unfilled(name, parameter, rules.get(name), weights))
            continue
        rule = rules[name]
        used.update(rule.sources)
        value = rule.made(weights)
        if value.shape != parameter.shape:
            came = ", ".join(f"{source!r} {list(weights[source].shape)}" for source in rule.sources)
            problems.append(f"{name} is {list(parameter.shape)}, but {came} make {list(value.shape)}")
            continue
        parameter.data = value.to(parameter.device, copy=True).contiguous()
    problems += [_unused(name, weights, rules) for name in weights if name not in used and not _optional(name, layout)]
    if problems:
        raise UsageError("The weights do not fit the architecture:\n" + "\n".join(f"  {p}" for p in problems))


def _optional(name: str, layout: Layout) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in layout.optional)


def _unfilled(name: str, parameter: Tensor, rule: Rule | None, weights: Weights) -> str:
    """The problem of a parameter that no weight fills."""
    place = f"{name} {list(parameter.shape)}"
    if rule is None:
        return f"{place} has no counterpart in this layout"
    missing = next(source for source in rule.sources if source not in weights)
    return f"{place} needs {missing!r}, which the weights do not hold.{nearest(missing, weights)}"


def _unused(name: str, weights: Weights, rules: Mapping[str, Rule]) -> str:
    """The problem of a weight that fills no parameter."""
    place = f"{name!r} {list(weights[name].shape)}"
    targets = [rule.target for rule in rules.values() if name in rule.sources]
    if targets:
        return f"{place} is for {targets[0]}, which the architecture does not have"
    sources = {source for rule in rules.values() for source in rule.sources}
    return f"{place} has no place in this layout.{nearest(name, sources)}"
