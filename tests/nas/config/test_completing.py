"""An architecture gets the fields that the task decides, if it leaves them out or is a model of the zoo."""

from __future__ import annotations

import pytest

from nas import tasks
from nas.config import completing
from searchspace.errors import SpaceError


def prepared(name, **options):
    task = tasks.load({name: options})
    task.prepare(None)
    return task


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("transformer", "reversal"),
        ("transformer_decoder", "copy"),
        ("transformer_encoder", "disturbed_text"),
        ("transformer_encoder", "digits"),
        ("vit", "masked_language_model"),
    ],
)
def test_a_model_of_the_zoo_is_completed_for_a_task_of_its_kind(name, task):
    needed = prepared(task)
    tasks.check(needed, completing.find(f"{name}:tiny", needed).root)


def test_a_model_of_another_kind_stays_as_it_is():
    found = completing.find("gru:tiny", prepared("digits"))
    assert found.root.name == "decoder" and found.root.fields["vocabulary"] == 256


def test_a_model_that_the_task_cannot_use_is_named():
    with pytest.raises(SpaceError, match="funnel:tiny:1: tokens: true returns logits at every position"):
        completing.find("funnel:tiny", prepared("masked_language_model"))


def test_a_file_keeps_what_it_has_and_gets_what_it_leaves_out(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("{kind: encoder, width: 16, features: 5, body: attention}")
    fields = completing.find("mine.yaml", prepared("digits"), folder=tmp_path).root.fields
    assert (fields["features"], fields["classes"], fields["vocabulary"]) == (5, 10, None)
