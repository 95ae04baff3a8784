"""What holds for every shipped task: it reports what it declares, draws its shape, and predicts."""

from __future__ import annotations

import pytest
import torch

from nas import tasks
from nas.tasks.contract import Documents, Evaluation, Metric, defines_outputs, reported
from nas.tasks.shapes import check_first
from nas.tasks.vocabulary import Vocabulary
from searchspace.contract import Context


@pytest.mark.parametrize("name", tasks.names())
def test_a_task_reports_what_it_declares_and_predicts(name, small, model_for):
    task = small(name)
    model = model_for(task)
    with torch.inference_mode():
        found = task.metrics(model, task.held_out("validation"))
        answers = task.predict(model, task.draw("train", 0, 0))
    declared = reported(task)
    assert declared is not None and {each.name for each in declared} == found.keys()
    assert all(isinstance(each, Metric) and each.unit for each in declared)
    assert answers.dtype == torch.int64 and answers.shape[0] == task.batch
    classes = task.requires().get("classes") or task.requires()["vocabulary"]
    assert 0 <= int(answers.min()) <= int(answers.max()) < classes


@pytest.mark.parametrize("name", tasks.names())
def test_the_documents_of_a_task_add_up_to_each_of_its_metrics(name, small, model_for):
    task = small(name)
    with torch.inference_mode():
        found = task.evaluate(model_for(task), task.held_out("validation"))
    assert [each.metric for each in found.every] == [each.name for each in task.reports]
    for each in found.every:
        assert each.value == pytest.approx(found.metrics[each.metric])
        assert len(each.names) > 1 and each.names == found.every[0].names
        assert found.scored_in(each.metric) is each
    assert found.scored_in("flops") is found.every[0]


@pytest.mark.parametrize("name", tasks.names())
def test_a_task_draws_what_it_says_and_leaves_its_loss_to_a_criterion(name, small, model_for):
    task = small(name)
    assert defines_outputs(task)
    model = model_for(task)
    check_first(task, model)
    outputs, targets = task.outputs(model, task.draw("train", 0, 0), Context())
    assert outputs.shape[:1] == targets.shape
    assert task.target_kind == "classes" and not targets.is_floating_point()


@pytest.mark.parametrize("name", tasks.names())
def test_a_vocabulary_has_as_many_symbols_as_the_model_and_survives_a_trip(name, small):
    task = small(name)
    if "vocabulary" not in task.requires():
        assert task.vocabulary is None
        return
    assert task.vocabulary.size == task.requires()["vocabulary"]
    again = Vocabulary.from_dict(task.vocabulary.to_dict())
    assert again == task.vocabulary
    symbols = list(range(again.size))
    if again.kind != "bytes":
        assert len(again.decode(symbols)) > 0
    if again.kind == "words":
        assert again.encode(again.decode(symbols)) == symbols


def test_a_task_of_characters_reads_and_writes_its_text(small, prose, tmp_path):
    text = prose.read_text(encoding="utf-8")
    task = small("reversal", level="characters")
    assert task.vocabulary.decode(task.vocabulary.encode(text)) == text
    assert task.vocabulary.size == len(set(text)) + 1
    assert task.vocabulary.decode([task.vocabulary.special_symbol("start")]) == "<start>"
    with pytest.raises(ValueError, match="lacks: '%'"):
        task.vocabulary.encode("%")
    cached = small("language_model", level="characters")
    for _ in range(2):  # written to the cache, then read from it
        cached.prepare(tmp_path)
        assert cached.vocabulary.decode(cached.vocabulary.encode(text)) == text


def test_bytes_decode_what_is_not_text():
    vocabulary = Vocabulary.from_dict({"kind": "bytes", "special": ["mask"]})
    assert vocabulary.decode([104, 105, 256, 255]) == "hi<mask>\ufffd"
    with pytest.raises(ValueError, match="from 0 to 256, but got 257"):
        vocabulary.decode([257])


def test_a_language_model_continues_the_first_half(small, model_for):
    task = small("language_model", length=9)
    model, batch = model_for(task), task.draw("train", 0, 0)
    with torch.inference_mode():
        made = task.predict(model, batch)
        known = torch.cat([batch[0][:, :4], made], dim=1)
        expected = model(known[:, :-1], Context())[:, 3:].argmax(-1)
    assert made.shape == (2, 5) and made.equal(expected)


def test_a_reversal_is_generated_from_its_source_alone(small, model_for):
    task = small("reversal")
    model, (source, target) = model_for(task), task.draw("train", 0, 0)
    with torch.inference_mode():
        assert task.predict(model, (source, target)).equal(task.predict(model, (source, target.flip(0))))


def test_a_class_is_scored_by_the_method_that_it_defines_itself(small, model_for):
    class Counted(type(small("copy"))):
        def metrics(self, model, batches):
            return super().metrics(model, batches) | {"batches": 2.0}

    class Scored(Counted):
        def evaluate(self, model, batches):
            return Evaluation({"error": 0.5}, Documents("error", ("a",), [0.5], [1.0]))

    counted, scored = Counted(length=8, batch=2), Scored(length=8, batch=2)
    model = model_for(counted)
    batches = [counted.draw("test", 0, 0)]
    with torch.inference_mode():
        found = counted.evaluate(model, batches)
    assert found.documents is None and found.metrics.keys() == {"error", "loss", "batches"}
    assert scored.metrics(model, batches) == {"error": 0.5}


@pytest.mark.parametrize("name", ["language_model", "masked_language_model", "reversal", "disturbed_text"])
def test_a_unit_of_a_search_is_evaluated_on_a_part_that_is_spread_over_the_held_out_data(name, small):
    task = small(name)

    def read(batches):
        batches = list(batches)
        return (
            sum(each[0].numel() for each in batches),
            len(batches),
            {int(i) for each in batches for i in each[-1].flatten()},
        )

    every, batches, documents = read(task.held_out("validation"))
    some, _, fewer = read(task.some_held_out("validation", every // 2))
    assert abs(task.held_out_positions("validation") - every) <= task.length
    assert every // 2 - task.length < some <= every // 2 + task.length
    assert len(fewer) > len(documents) / 3 and read(task.some_held_out("validation", 10**9))[0] == every
    assert batches == -(-every // task.length // task.held_out_batch) and task.held_out_batch > task.batch
