"""The dispatch is folded away: what is left is plain PyTorch."""

import ast

from nas.exports.bundle.folding import folded

MODULE = '''
def softmax_reference(x):
    return x.softmax(-1)


def _chosen(x, config: Choice | None):
    return tuned.implementation(OPERATION, x.device.type, x.dtype, (), (), config)


def softmax(x: Tensor, *, config: Choice | None = None) -> Tensor:
    """x: [N, C] -> [N, C].

    Without `config` the tuned choice runs.
    """
    if config is None and tuned.untouched(OPERATION, x.device):
        return fast(x)
    N, C = x.shape
    sizes = (N, C)
    # the same for all
    return tuned.implementation(OPERATION, x.device.type, x.dtype, sizes, (), config)(x)


def other(x):
    if is_plain() or torch.compiler.is_compiling():
        return x + 1
    return Fused.apply(x)


def through(x):
    return _chosen(x, None)(x) if not is_plain() else _chosen(x, None)(x)


OPERATION = register(Operation(name="softmax", reference=softmax_reference, implementations={}))
'''


def test_the_definition_replaces_the_dispatch():
    text = folded(MODULE)

    assert "return softmax_reference(x)" in text
    assert "def softmax(x: Tensor) -> Tensor:" in text
    for gone in ("tuned.implementation(OPERATION, x", "is_plain", "Fused", "sizes =", "`config`", "fast"):
        assert gone not in text.partition("def _chosen")[0] + text.partition("def softmax(")[2]
    ast.parse(text)


def test_comments_stay_and_calls_of_choosers_are_folded():
    text = folded(MODULE)

    assert "# the same for all" in text
    assert "    return softmax_reference(x)\n\n\nOPERATION" in text


def test_a_module_without_operations_stays_as_it_is():
    text = "import math\n\n\ndef area(r):\n    unused = 1\n    return math.pi * r**2\n"

    assert folded(text) == text
