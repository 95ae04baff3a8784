"""What a position may see: the past, both sides, and never padding."""

from __future__ import annotations

import torch

from searchspace.apart import positions
from searchspace.checking.cases import B, Case, S, again, context, drawn, stream
from searchspace.checking.contract import Check, ensure, near, once
from searchspace.contract import Streams


def nothing_of_the_future_reaches_the_past(case: Case) -> None:
    block = case.built()
    for length, cut in ((7, 3), (131, 70)):
        x = drawn(length)
        changed, choices = torch.cat([x[:, :cut], drawn(length - cut) * 9], dim=1), case.choices()
        x.requires_grad_()
        early = block(x, context(x, choices=choices))[:, :cut]
        found = block(changed, context(changed, choices=again(choices)))[:, :cut]
        near(found, early, 1e-12, f"other inputs after position {cut} change outputs before it")
        if early.requires_grad:
            (gradient,) = torch.autograd.grad((early * torch.randn_like(early)).sum(), x)
            ensure(gradient[:, cut:].abs().max() == 0, "outputs have gradients from later positions")


def what_may_look_both_ways_sees_as_much_ahead_as_behind(case: Case) -> None:
    block, x = case.built(), drawn(9).requires_grad_()
    middle = block(x, context(x))[:, 4]
    (gradient,) = torch.autograd.grad((middle * torch.randn_like(middle)).sum(), x)
    seen = gradient.abs().sum((0, 2)) > 0
    if getattr(case.config, "directions", "both") == "forward":
        ensure(not seen[5:].any(), "it reads forward, and yet sees later positions")
    else:
        where = [index for index, each in enumerate(seen.tolist()) if each]
        ensure(seen.tolist() == seen.flip(0).tolist(), f"position 4 of 0 to 8 sees {where}")


def what_sees_the_future_refuses_to_read_in_pieces(case: Case) -> None:
    block, x = case.built(), drawn(5).requires_grad_()  # a dilated window sees every third position
    block(x, context(x))[:, 0].sum().backward()
    assert x.grad is not None
    if not x.grad[:, 1:].any():  # such as attention over an encoder's output, which is known as a whole
        found, _ = stream(block, x, [1, 4])
        near(found, block(x, context(x)), 1e-9, "reading in pieces differs from reading at once")
        return
    try:
        block(x, context(x, streams=Streams()))
    except ValueError as error:
        ensure("looks both ways" in str(error), f"the error does not say that it looks both ways: {error}")
    else:
        raise AssertionError("it sees the future, and yet reads in pieces: raise ValueError('... looks both ways')")


def padded_values_change_nothing_at_real_positions(case: Case) -> None:
    block, x = case.built(), drawn(11)
    padding = torch.ones(B, 11, dtype=torch.bool)
    padding[0, 8:] = padding[1, 2:4] = False
    memory_padding = torch.tensor([[True] * S, [True] * 3 + [False] * 2])
    used = context(x, padding=padding, memory_padding=memory_padding)
    there = used.read("memory")
    memory = torch.where(memory_padding[:, :, None], there, torch.full_like(there, 7.0))
    changed = torch.where(padding[:, :, None], x, drawn(11) * 9)
    expected = block(x, used)
    found = block(changed, context(x, padding=padding, memory_padding=memory_padding, memory=memory))
    near(found[padding], expected[padding], 1e-12, "values at padded positions change outputs at real ones")
    alone = block(x[:1, :8], context(x[:1, :8], memory=there[:1]))
    near(expected[:1, :8], alone, 1e-12, "a padded sequence has other outputs than the same sequence alone")


def documents_in_one_row_equal_each_document_alone(case: Case) -> None:
    block, (first, second) = case.built(), (5, 8)
    x, choices = drawn(first + second), case.choices()
    documents = torch.tensor([[7] * first + [2] * second, [1] * (first + second)])
    used = context(x, documents=documents, choices=choices)
    used.positions = positions(documents)
    found = block(x, used)
    for row, start, stop in ((0, 0, first), (0, first, first + second), (1, 0, first + second)):
        part = x[row : row + 1, start:stop]
        there = context(part, memory=used.read("memory")[row : row + 1])
        there.write("segments", used.read("segments")[row : row + 1, start:stop], "B T")
        near(found[row : row + 1, start:stop], block(part, there), 1e-9, "a document differs from the document alone")


def a_wholly_padded_sequence_and_memory_give_no_nan(case: Case) -> None:
    block, x = case.built(), drawn(5).requires_grad_()
    nothing = torch.zeros(B, S, dtype=torch.bool)
    used = context(x, padding=torch.zeros(B, 5, dtype=torch.bool), memory_padding=nothing)
    y = block(x, used)
    y.sum().backward()
    ensure(y.isfinite().all(), "outputs of a wholly padded sequence are not finite")
    every = (x, *block.parameters())
    ensure(all(value.grad is None or value.grad.isfinite().all() for value in every), "gradients are not finite")


def _causal(case: Case) -> bool:
    return case.causal


def _both_ways(case: Case) -> bool:
    return not case.causal


def _hides_padding(case: Case) -> bool:
    """A configuration may say that it lets padding through, as some released code does."""
    return bool(getattr(case.config, "hides_padding", True))


CHECKS = (
    Check(nothing_of_the_future_reaches_the_past, _causal),
    Check(what_may_look_both_ways_sees_as_much_ahead_as_behind, _both_ways),
    Check(what_sees_the_future_refuses_to_read_in_pieces, _both_ways),
    Check(padded_values_change_nothing_at_real_positions, _hides_padding),
    Check(documents_in_one_row_equal_each_document_alone, _hides_padding),
    Check(a_wholly_padded_sequence_and_memory_give_no_nan, once),
)
