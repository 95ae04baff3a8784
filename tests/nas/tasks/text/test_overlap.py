"""The overlap counts exactly the strings of 32 bytes that the training text has too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.tasks.text import overlap
from nas.tasks.text.overlap import WIDTH, covered, repeated


def plainly(held: bytes, starts, training: bytes):
    known = {training[place : place + WIDTH] for place in range(len(training) - WIDTH + 1)}
    ends = [*starts[1:], len(held)]
    within = {place for start, end in zip(starts, ends) for place in range(start, end - WIDTH + 1)}
    return [place in within and held[place : place + WIDTH] in known for place in range(len(held))]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_it_finds_what_a_set_of_strings_finds(data):
    letters = st.binary(min_size=0, max_size=120).map(lambda each: bytes(byte % 2 for byte in each))
    pieces = data.draw(st.lists(letters, min_size=1, max_size=4))
    training = b"".join(data.draw(st.permutations(pieces))) + data.draw(letters)
    held = b"".join(pieces)
    starts = sorted({0, *np.cumsum([len(each) for each in pieces[:-1]]).tolist()} - {len(held)}) or [0]
    found = repeated(np.frombuffer(held, np.uint8), np.array(starts), np.frombuffer(training, np.uint8))
    assert found.tolist() == plainly(held, starts, training)


def test_the_training_text_is_read_in_blocks(monkeypatch):
    monkeypatch.setattr(overlap, "BLOCK", 64)
    training = np.random.default_rng(0).integers(0, 256, 5_000, np.uint8)
    held = np.concatenate([training[1_000:1_500], 255 - training[:500]])
    found = repeated(held, np.array([0]), training)
    assert found.sum() == 500 - WIDTH + 1 and found[: 500 - WIDTH + 1].all()


def test_every_byte_of_a_repeated_string_is_covered():
    starts = np.zeros(200, bool)
    starts[[10, 20, 100]] = True
    assert np.flatnonzero(covered(starts)).tolist() == [*range(10, 52), *range(100, 132)]


@pytest.mark.parametrize("size", [0, 5, 31])
def test_short_texts_have_no_overlap(size):
    data = np.zeros(size, np.uint8)
    assert repeated(data, np.array([0]), np.zeros(100, np.uint8)).tolist() == [False] * size
