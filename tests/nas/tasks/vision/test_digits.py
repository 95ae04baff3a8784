"""Handwritten digits are split once and cut into the pieces they promise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nas.errors import UsageError
from nas.tasks import load
from nas.tasks.vision.digits import PARTS, Digits


def prepared(cache: Path | None = None, **options) -> Digits:
    task = Digits(**options)
    task.prepare(cache)
    return task


def test_the_parts_hold_every_image_once():
    from sklearn.datasets import load_digits  # slow to import, and other tests are collected without it

    task = prepared(pieces="rows")
    held = [next(task.held_out(split)) for split in PARTS]
    images = torch.cat([images for images, _ in held]).flatten(1)
    pixels, classes = load_digits(return_X_y=True)
    expected = {(*row, digit) for row, digit in zip((pixels / 16).tolist(), classes.tolist())}
    found = torch.cat([classes for _, classes in held]).tolist()
    assert {(*row, digit) for row, digit in zip(images.tolist(), found)} == expected
    assert len(images) == len(pixels) == sum(high - low for low, high in PARTS.values())


def test_patches_are_squares_of_the_image():
    rows, patches = prepared(pieces="rows"), prepared(pieces="patches")
    image, patch = rows.images[7], patches.images[7]
    assert patch.shape == (16, 4)
    for index in range(16):
        top, left = 2 * (index // 4), 2 * (index % 4)
        assert torch.equal(patch[index], image[top : top + 2, left : left + 2].flatten())


def test_an_epoch_shows_an_image_at_most_once():
    task = prepared(batch=100)
    images = torch.cat([task.draw("train", 1, index)[0] for index in range(12)]).flatten(1)
    assert len(images.unique(dim=0)) == len(images) == 1_200
    assert not torch.equal(task.draw("train", 1, 0)[0], task.draw("train", 1, 12)[0])


def test_the_cache_holds_the_same_data(tmp_path):
    made, opened, plain = prepared(tmp_path), prepared(tmp_path), prepared()
    assert made.data_hash == opened.data_hash == plain.data_hash
    assert torch.equal(opened.images, plain.images)


def test_error_is_the_fraction_of_wrong_classes():
    task = prepared()
    images, classes = next(task.held_out("test"))
    right = torch.nn.functional.one_hot(classes, 10).float() * 50
    right[: len(right) // 2] = right[: len(right) // 2].roll(1, dims=1)
    metrics = task.metrics(lambda images, context: right, [(images, classes)])
    assert metrics["error"] == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pieces": "columns"}, "option 'pieces': must be 'patches' or 'rows'"),
        ({"batch": 2_000}, "batch must be at most 1257"),
    ],
)
def test_rejects_options_with_their_names(options, message):
    with pytest.raises(UsageError, match=message):
        load({"digits": options})
