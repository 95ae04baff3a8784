"""The language model's text is read, cut and scored as it says."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nas import tasks
from nas.errors import UsageError
from nas.tasks.contract import SPLITS
from nas.tasks.text import reading as text
from nas.tasks.text.language_model import LanguageModel
from searchspace.contract import Context

PROSE = "Die Häuser stehen fest — und wer sie baut, der weiß warum.\n" * 60


@pytest.fixture
def prose(tmp_path: Path) -> Path:
    path = tmp_path / "prose.txt"
    path.write_text(PROSE, encoding="utf-8")
    return path


def prepared(path: Path, **options) -> LanguageModel:
    task = LanguageModel(data=str(path), **options)
    task.prepare(None)
    return task


class Uniform(nn.Module):
    """Finds every symbol equally likely."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, tokens: Tensor, context: Context) -> Tensor:
        return self.logits.expand(*tokens.shape, -1)


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(600, 5_000),
    length=st.integers(1, 40),
    weights=st.lists(st.integers(1, 8), min_size=3, max_size=3),
    seed=st.integers(0, 2**40),
    index=st.integers(0, 10**9),
)
def test_no_window_reaches_into_another_part(size, length, weights, seed, index):
    shares = [weight / sum(weights) for weight in weights]
    task = LanguageModel(length=length, batch=8, split=shares, split_by="position")
    # Each symbol is its own place, so that a window shows where it was cut.
    task.text = text.Text(np.arange(size, dtype=np.uint32), np.ones(size, np.uint8), "")
    parts = [task.part(split) for split in SPLITS]
    assert parts[0][0] == 0 and parts[-1][1] == size
    assert parts[0][1] == parts[1][0] and parts[1][1] == parts[2][0]
    for split, (low, high) in zip(SPLITS, parts):
        for inputs, targets, *_ in [task.draw(split, seed, index), *task.held_out(split)]:
            assert torch.equal(inputs[:, 1:], targets[:, :-1])
            assert int(inputs.min()) >= low and int(targets.max()) < high


@pytest.mark.parametrize("evaluation", [None, 64, 1_000])
def test_held_out_windows_never_overlap_and_span_the_part(evaluation, prose):
    task = prepared(prose, length=16, batch=4, evaluation=evaluation, split_by="position")
    task.text = text.Text(np.arange(3_000, dtype=np.uint32), np.ones(3_000, np.uint8), "")
    low, high = task.part("validation")
    targets = torch.cat([targets.flatten() for _, targets, *_ in task.held_out("validation")])
    assert len(targets.unique()) == len(targets)
    wanted = high - low if evaluation is None else min(evaluation, high - low)
    assert wanted - 16 - 1 <= len(targets) <= wanted


def test_the_first_and_the_last_window_of_a_part_are_drawn(prose):
    task = prepared(prose, length=16, batch=512)
    task.text = text.Text(np.arange(800, dtype=np.uint32), np.ones(800, np.uint8), "")
    low, high = task.part("validation")
    inputs, targets, _ = task.draw("validation", 0, 0)
    assert int(inputs.min()) == low and int(targets.max()) == high - 1


@settings(max_examples=8, deadline=None)
@given(length=st.integers(1, 300), batch=st.integers(1, 9), level=st.sampled_from(["bytes", "characters"]))
def test_every_held_out_byte_is_predicted_once_for_its_own_document(tmp_path_factory, length, batch, level):
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_text("".join(f"Zeile {number} für sich\n\n" for number in range(300)), encoding="utf-8")
    task = prepared(path, length=length, batch=batch, level=level)
    for split in ("validation", "test"):
        low, high = task.part(split)
        found = {name: bytearray() for name in task.text.names}
        with torch.inference_mode():
            evaluation = task.evaluate(Uniform(task.text.size), task.held_out(split))
        for inputs, targets, widths, numbers in task.held_out(split):
            assert inputs.shape == targets.shape == widths.shape == numbers.shape == (len(inputs), length)
            assert torch.equal(inputs[:, 1:], targets[:, :-1])
            for target, width, number in zip(targets.flatten(), widths.flatten(), numbers.flatten()):
                if width:
                    symbol = int(target)
                    character = task.text.characters[symbol].encode() if level == "characters" else bytes([symbol])
                    found[task.text.names[number]] += character
        ends = [*task.text.starts[1:], len(task.text.symbols)]
        expected = {
            name: bytes(task.text.encoded(start, end))
            for name, start, end in zip(task.text.names, task.text.starts, ends)
            if low <= start < high
        }
        assert {name: bytes(each) for name, each in found.items() if each} == expected
        assert set(evaluation.every[0].names) == set(expected)
        sizes = [len(expected[name]) for name in evaluation.every[0].names]
        assert evaluation.every[0].weights.tolist() == sizes


def test_a_uniform_model_needs_eight_bits_for_a_byte(prose):
    task = prepared(prose, length=16, batch=4)
    metrics = task.metrics(Uniform(256), task.held_out("test"))
    assert metrics["bits_per_byte"] == pytest.approx(8.0, abs=1e-5)
    assert metrics["loss"] == pytest.approx(math.log(256), abs=1e-5)


def test_bits_per_byte_of_characters_count_the_bytes_they_take(prose):
    task = prepared(prose, level="characters", length=16, batch=4, split_by="position")
    assert task.requires() == {"kind": "decoder", "vocabulary": len(set(PROSE))}
    low, high = task.part("validation")
    metrics = task.metrics(Uniform(len(set(PROSE))), task.held_out("validation"))
    predicted = PROSE[low + 1 : low + 1 + (high - low - 1) // 16 * 16]
    assert len(predicted.encode()) > len(predicted)
    bits = math.log2(len(set(PROSE))) * len(predicted)
    assert metrics["bits_per_byte"] == pytest.approx(bits / len(predicted.encode()), rel=1e-5)


def test_characters_decode_to_the_text(prose):
    read = text.read([str(prose)], "characters", None)
    alphabet = sorted(set(PROSE))
    assert "".join(alphabet[symbol] for symbol in read.symbols) == PROSE


def test_a_batch_is_the_same_whenever_it_is_asked_for(prose):
    task, again = prepared(prose, length=16), prepared(prose, length=16)
    stream = task.batches("train", 3)
    for _ in range(5):
        next(stream)
    assert torch.equal(next(stream)[0], next(again.batches("train", 3, start=5))[0])
    assert not torch.equal(task.draw("train", 3, 5)[0], task.draw("train", 4, 5)[0])
    assert not torch.equal(task.draw("train", 3, 5)[0], task.draw("train", 3, 6)[0])


def test_segments_are_consecutive_windows_in_training_alone(prose):
    task = prepared(prose, length=8, batch=3, segments=4)
    low, high = task.part("train")
    for sequence in range(20):
        batches = [task.draw("train", 0, 4 * sequence + segment) for segment in range(4)]
        for (_, targets, _), (inputs, _, _) in itertools.pairwise(batches):
            assert inputs[:, 0].equal(targets[:, -1])  # a segment begins with the last target of the one before
        whole = torch.cat([inputs for inputs, _, _ in batches], dim=1)
        text = bytes(task.text.symbols[low:high].astype(np.uint8))
        assert all(bytes(row.to(torch.uint8).tolist()) in text for row in whole)
    single = prepared(prose, length=8, batch=3)
    assert task.draw("validation", 0, 3)[0].equal(single.draw("validation", 0, 3)[0])


def test_a_text_too_short_for_its_segments_is_refused(prose):
    with pytest.raises(UsageError, match=r"a window needs 8193 \(length \* segments \+ 1\)"):
        prepared(prose, length=8, segments=1024)


def test_files_are_read_in_the_order_of_the_list_once_each(tmp_path):
    for name, content in (("b.txt", "second"), ("a.txt", "first"), ("c.md", "third")):
        (tmp_path / name).write_text(content)
    read = text.read([str(tmp_path / "c.md"), str(tmp_path / "*.txt"), str(tmp_path / "a.*")], "bytes", None)
    assert bytes(read.symbols) == b"thirdfirstsecond"
    assert read.sha256 == hashlib.sha256(b"thirdfirstsecond").hexdigest()


def test_a_changed_file_is_prepared_again(prose, tmp_path):
    cache = tmp_path / "cache"
    before = text.read([str(prose)], "bytes", cache)
    assert text.read([str(prose)], "bytes", cache).sha256 == before.sha256
    prose.write_text(PROSE + "more", encoding="utf-8")
    after = text.read([str(prose)], "bytes", cache)
    assert after.sha256 == hashlib.sha256((PROSE + "more").encode()).hexdigest() != before.sha256


def _read_and_note(path: str, cache: str, barrier) -> None:
    original = text._encode

    def noted(*arguments):
        with (Path(cache).parent / "made").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return original(*arguments)

    text._encode = noted
    barrier.wait()
    assert text.read([path], "bytes", Path(cache)).sha256


def test_two_processes_prepare_the_data_once(prose, tmp_path):
    processes = get_context("fork")
    barrier = processes.Barrier(2)
    workers = [
        processes.Process(target=_read_and_note, args=(str(prose), str(tmp_path / "cache"), barrier)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len((tmp_path / "made").read_text().split()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levle": "bytes"}, r"no option 'levle'. Did you mean 'level'\?"),
        ({"level": "words"}, r"option 'level': must be 'bytes' or 'characters', but got 'words'"),
        ({"length": 0}, r"option 'length': must be greater than or equal to 1, but got 0"),
        ({"batch": True}, r"option 'batch': must be a valid integer, but got True"),
        ({"evaluation": 5}, r"evaluation must be at least length, 128, but got 5"),
        ({"split": [0.5, 0.5]}, r"option 'split': must be 3 fractions"),
        ({"split": [1, 0, 0]}, r"option 'split': must be 3 fractions above 0"),
        ({"data": []}, r"option 'data': must be a path"),
        ({"data": 3}, r"option 'data': must be a path"),
        ({"data": {"train": "a"}}, r"option 'data': must name train, validation and test, or train and held_out"),
        ({"data": {"train": "a", "held_out": 3}}, r"option 'data': must be a path"),
        ({"split_by": "hash"}, r"option 'split_by': must be 'documents' or 'position'"),
    ],
)
def test_rejects_options_with_their_names(options, message):
    with pytest.raises(UsageError, match=message):
        tasks.load({"language_model": options})


def test_says_which_pattern_found_no_file(tmp_path):
    with pytest.raises(UsageError, match=r"no file matches '.*nothing-\*\.txt'"):
        prepared(tmp_path / "nothing-*.txt")
    with pytest.raises(UsageError, match="It is a folder"):
        prepared(tmp_path)


def test_says_which_file_is_not_utf_8(prose, tmp_path):
    other = tmp_path / "zebra.txt"
    other.write_bytes(b"abc\xff")
    with pytest.raises(UsageError, match=r"zebra\.txt, byte 3, is not UTF-8"):
        prepared(tmp_path / "*.txt", level="characters")


def test_says_that_two_documents_do_not_make_three_parts(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name * 1_000)
    with pytest.raises(UsageError, match=r"The text has 2 documents; a document is a file\. `documents` may"):
        prepared(tmp_path / "*.txt", documents="files", split_by="documents")


def test_says_which_part_of_a_short_text_has_no_window(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("x" * 1_000)
    with pytest.raises(UsageError, match=r"validation part of the text has 50 bytes, but a window needs 65"):
        prepared(path, length=64, split_by="position")
    with pytest.raises(UsageError, match=r"train part of the text has 0 bytes"):
        prepared(path, length=64, documents="files")


def test_a_relative_path_is_taken_from_the_folder_of_the_search_file(tmp_path):
    shipped, source = tasks.ship({"language_model": {"data": "texts/*.txt", "length": 8}}, tmp_path)
    assert shipped == {"language_model": {"data": [str(tmp_path / "texts/*.txt")], "length": 8}}
    assert source is None


REPEATED = "This sentence is in the training text and in the held-out text alike.\n"


def test_what_the_training_text_has_too_is_reported_and_left_out_on_request(tmp_path):
    words = [f"{number} {number * 7919 % 1000} {number * 104729 % 1000}" for number in range(3_000)]
    (tmp_path / "train.txt").write_text(REPEATED + "\n".join(words[:1_000]), encoding="utf-8")
    (tmp_path / "held.txt").write_text("\n".join(words[1_000:2_000]) + "\n" + REPEATED, encoding="utf-8")
    (tmp_path / "other.txt").write_text("\n".join(words[2_000:]), encoding="utf-8")
    data = {"train": "train.txt", "validation": "held.txt", "test": "other.txt"}
    given = LanguageModel.resolve({"data": data, "length": 16, "documents": "files"}, tmp_path)
    kept, removed = LanguageModel(**given), LanguageModel(**given, remove_overlap=True)
    for task in (kept, removed):
        task.prepare(tmp_path / "cache")
    held = (tmp_path / "held.txt").stat().st_size
    facts = removed.data_facts()

    assert facts["overlap"] == {"validation": pytest.approx((len(REPEATED) - 31) / (held - 31)), "test": 0.0}
    assert facts["removed"]["validation"] == pytest.approx(len(REPEATED) / held) and "removed" not in kept.data_facts()
    assert facts["documents"] == {"train": 1, "validation": 1, "test": 1} and facts["document"] == "a file"
    assert facts["bytes"]["validation"] == held and facts["largest"]["validation"] == 1.0
    assert {**facts, "removed": None} == {**kept.data_facts(), "removed": None}
    model = Uniform(256)
    scored = [task.evaluate(model, task.held_out("validation")).every[0].weights.sum() for task in (kept, removed)]
    assert scored == [held, held - len(REPEATED)]


def test_a_text_that_is_all_in_the_training_part_cannot_be_scored_without_it(tmp_path):
    for name in ("train", "validation", "test"):
        (tmp_path / name).write_text(REPEATED * 20)
    data = {name: str(tmp_path / name) for name in ("train", "validation", "test")}
    with pytest.raises(UsageError, match="all of the validation part occurs in the training part too"):
        LanguageModel(data=data, length=16, remove_overlap=True).prepare(None)
    with pytest.raises(UsageError, match="is given for more than one part"):
        LanguageModel(data=data | {"test": data["train"]}, length=16).prepare(None)


@pytest.mark.parametrize("by", ["documents", "position"])
def test_wikitext_is_divided_by_its_articles(by, shared_data):
    """Train on one file; validate on one half of the articles of the other, test on the other half."""
    folder = shared_data("wikitext2-eval")
    data = {"train": str(folder / "test.txt"), "held_out": str(folder / "valid.txt")}
    task = LanguageModel(data=data, documents={"separator": "^ = [^=].* = $"}, split_by=by)
    task.prepare(None)
    facts = task.data_facts()
    assert task.text.names[1] == "= Du Fu =" and facts["documents"]["train"] == 62
    assert facts["documents"]["validation"] + facts["documents"]["test"] == 60
    assert sum(facts["bytes"].values()) == sum(path.stat().st_size for path in folder.glob("*.txt"))
    if by == "position":
        half = (folder / "valid.txt").read_bytes()[: facts["bytes"]["validation"]]
        assert bytes(task.text.encoded(*task.part("validation"))) == half
        assert 0.4 < len(half) / (folder / "valid.txt").stat().st_size <= 0.5
