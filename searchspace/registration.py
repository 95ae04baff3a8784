"""What a class must have to be registered as a block, checked when its file is read."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Collection
from typing import Any

from torch import nn

from searchspace.contract import GIVEN, Given, Primitive

NAME = re.compile(r"[^\W\d](?:[^\n:#]*[^\s:#])?")
GIVEN_NAMES = tuple(field.name for field in dataclasses.fields(Given))


def problem(name: Any, config: Any, module: Any, role: Any, roles: Collection[str]) -> str | None:
    """Why `module` cannot be registered as the block `name` with the configuration class `config`; None if it can."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return f"a name must begin with a letter and have no `:` or `#`, but got {name!r}"
    if role not in roles:
        return f"role must be one of {', '.join(roles)}, but got {role!r}"
    if not isinstance(config, type) or not dataclasses.is_dataclass(config):
        return f"the configuration must be a dataclass, but got {config!r}"
    unknown = [field.name for field in _given(config) if field.name not in GIVEN_NAMES]
    if unknown:
        return f"a model hands down only {', '.join(GIVEN_NAMES)}, but given() marks {', '.join(unknown)}"
    if not inspect.isclass(module) or not issubclass(module, nn.Module):
        return f"@primitive decorates a subclass of torch.nn.Module, but got {module!r}"
    if role == "block" and not issubclass(module, Primitive):
        return f"{module.__name__} must be a subclass of searchspace.contract.Primitive"
    return None


def _given(config: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(config) if field.metadata.get(GIVEN)]
