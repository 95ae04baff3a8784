"""Sentence pairs are aligned, divided, padded and scored as the task says."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor, nn

from nas import tasks
from nas.config import searchfile
from nas.config.parts import parts
from nas.errors import UsageError
from nas.report.data import data_lines
from nas.tasks.contract import SPLITS
from nas.tasks.text import pairs
from nas.training.standalone import train
from searchspace.contract import Context
from searchspace.model.build import cost

TWICE = {"train": "long", "held_out": "long"}
ARCHITECTURE = """
kind: encoder_decoder
width: 32
vocabulary: {vocabulary}
encoder: [residual: {{norm: rms_norm, of: {{attention: {{heads: 2}}}}}}]
decoder:
  - residual: {{norm: rms_norm, of: {{attention: {{heads: 2}}}}}}
  - residual: {{norm: rms_norm, of: {{attention: {{heads: 2, over: memory}}}}}}
  - residual: {{norm: rms_norm, of: {{feed_forward: {{expand: 2}}}}}}
"""


class Uniform(nn.Module):
    """Finds every symbol equally likely, and keeps what it is given."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, source: Tensor, target: Tensor, context: Context) -> Tensor:
        self.target, self.context = target, context
        return self.logits.expand(*target.shape, -1)


@pytest.fixture
def write(tmp_path):
    def written(name: str, lines: list[str]) -> str:
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(tmp_path / name)

    return written


def prepared(**options):
    task = tasks.load({"translation": options})
    task.prepare(None)
    task.corpus = pairs.read(task.source, task.target, task.split)
    return task


def test_every_pair_is_in_one_part_and_equal_sources_are_together(write):
    lines = [f"sentence {number % 300}" for number in range(600)]
    task = prepared(source=write("a", lines), target=write("b", [f"Satz {number}" for number in range(600)]))
    parts = {split: {each.source for each in task.corpus.pairs[split]} for split in SPLITS}
    assert sum(len(each) for each in task.corpus.pairs.values()) == 600
    assert len(set.union(*parts.values())) == sum(map(len, parts.values())) == 300
    assert min(map(len, parts.values())) >= 15
    every = [(pair.source, pair.target) for each in task.corpus.pairs.values() for pair in each]
    assert all(int(source.split()[1]) == int(target.split()[1]) % 300 for source, target in every)


def test_given_parts_are_what_is_given(write):
    files = {
        side: {part: write(f"{part}.{side}", [f"{side} {part} {number}" for number in range(4)]) for part in SPLITS}
        for side in ("one", "other")
    }
    task = prepared(source=files["one"], target=files["other"])
    for part in SPLITS:
        assert [each.target for each in task.corpus.pairs[part]] == [f"other {part} {number}" for number in range(4)]
    facts = task.data_facts()
    assert facts["documents"] == dict.fromkeys(SPLITS, 4) and facts["document"] == "a pair of sentences"
    held = {side: {"train": each["train"], "held_out": each["test"]} for side, each in files.items()}
    halves = prepared(source=held["one"], target=held["other"]).corpus.pairs
    assert [len(halves[part]) for part in SPLITS] == [4, 2, 2]


@pytest.mark.parametrize("level", ["bytes", "words"])
def test_a_model_that_knows_nothing_loses_the_logarithm_of_the_vocabulary_on_each_symbol(sentences, level):
    task = prepared(**sentences, level=level, length=48)
    size = task.vocabulary.size
    with torch.inference_mode():
        found = task.evaluate(Uniform(size), task.held_out("test"))
    scored = task.corpus.pairs["test"]
    symbols = [len(task.ready.coder.encode(each.target)[0]) for each in scored]
    bytes_ = sum(len(each.target.encode()) + 1 for each in scored)

    assert found.metrics["loss"] == pytest.approx(math.log(size))
    assert found.metrics["bits_per_byte"] == pytest.approx(math.log2(size) * sum(symbols) / bytes_)
    assert found.every[0].weights.tolist() == symbols
    assert found.every[0].value == pytest.approx(found.metrics["loss"])


def test_words_that_training_has_not_seen_are_unknown_and_count_their_bytes(sentences):
    task = prepared(**sentences, level="words", words=5)
    symbols, widths = task.ready.coder.encode("das  Hündchen, alt")
    assert task.vocabulary.size == 5 + 3
    assert symbols[1] == task.vocabulary.special_symbol("unknown") and symbols[-1] == task.ready.coder.end
    assert widths.tolist() == [3, 2 + len("Hündchen".encode()), 1, 4, 1]


def test_the_decoder_reads_the_target_before_each_symbol_and_padding_is_told(write):
    source, target = write("a", ["ab", "abcdef"] * 50), write("b", ["xy", "z"] * 50)
    task = prepared(source=source, target=target, length=5, batch=4)
    model, batch = Uniform(258), next(iter(task.held_out("test")))
    logits, targets = task.outputs(model, batch, Context())
    short = task.corpus.pairs["test"][: len(batch[0])]
    lengths = [min(5, len(each.target) + 1) for each in short]
    assert model.context.padding.sum(1).tolist() == lengths
    assert model.context.read("memory_padding").sum(1).tolist() == [min(5, len(each.source) + 1) for each in short]
    assert (model.target[:, 0] == task.ready.coder.start).all() and model.target[:, 1:].equal(batch[1][:, :-1])
    assert len(logits) == len(targets) == sum(lengths)
    assert {pair.source for pair in task.corpus.pairs["train"]} <= {"ab", "abcdef"}
    assert (task.ready.coded["train"].lengths[:, 0] == 3).all(), "long sentences are not trained on"
    assert task.data_facts()["too_long"]["train"] == sum(len(p.source) > 4 for p in task.corpus.pairs["train"])


def test_a_model_learns_to_translate_a_tiny_corpus(sentences):
    spec = {"translation": {**sentences, "level": "words", "length": 10, "batch": 32}}
    size = prepared(**spec["translation"]).vocabulary.size
    outcome = train(ARCHITECTURE.format(vocabulary=size), spec, {"learning_rate": 0.01}, steps=30, threads=1)
    assert outcome.failure is None
    assert outcome.metrics["test/loss"] < 2.0 < math.log(size) and outcome.metrics["test/error"] < 0.7
    assert outcome.documents["test"].value == pytest.approx(outcome.metrics["test/loss"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "short"}, r"has 3 lines, but .*short has 2\. Line k of one must be"),
        ({"target": ["long", "short"]}, "source has 1 files, but target has 2"),
        ({"target": {"train": "long", "held_out": "short"}}, "must name the same parts"),
        ({"source": TWICE, "target": TWICE}, "is given for more than one part"),
        ({"length": 1}, "has no pair of at most 1 bytes a sentence"),
        ({"source": "broken.gz", "target": "long"}, r"broken\.gz cannot be read: Compressed file ended"),
        ({"target": None}, "option 'target': must be a path"),
    ],
)
def test_what_cannot_be_read_is_refused(options, message, write, tmp_path):
    write("long", ["one", "two", "three"]), write("short", ["eins", "zwei"])
    (tmp_path / "broken.gz").write_bytes(gzip.compress(b"one")[:-4])
    given = {"source": "long", "target": "long", **options}
    with pytest.raises(UsageError, match=message):
        if given["target"] is None:
            tasks.load({"translation": given})
        spec, _ = tasks.ship({"translation": given}, tmp_path)
        prepared(**spec["translation"])


def test_copies_of_pairs_are_not_held_out_and_repeated_targets_are_reported(write):
    source = [f"sentence {number}" for number in range(40)]
    target = [f"Satz {number % 39}" for number in range(40)]
    task = prepared(source=write("a.en", source * 10), target=write("a.de", target * 10))
    sources = {split: [each.source for each in some] for split, some in task.corpus.pairs.items()}
    assert sum(len(set(some)) for some in sources.values()) == 40
    assert all(len(set(sources[split])) == len(sources[split]) for split in ("validation", "test"))
    given = {
        side: {split: write(f"{split}.{side}", lines) for split in SPLITS}
        for side, lines in (("source", source), ("target", target))
    }
    facts = prepared(**given).data_facts()
    assert facts["overlap"]["test"] == 0, "all sentences are shorter than its strings"
    assert facts["repeated"] == {"validation": 1.0, "test": 1.0}
    assert "100.0% of the test pairs have a target sentence of the training part" in dict(data_lines(facts))["overlap"]


def test_pairs_are_the_same_from_the_cache(sentences, tmp_path):
    made = prepared(**sentences, level="words", length=12)
    for _ in range(2):  # written to the cache, then read from it
        opened = tasks.load({"translation": {**sentences, "level": "words", "length": 12}})
        opened.prepare(tmp_path)
        assert opened.data_facts() == made.data_facts() and opened.vocabulary == made.vocabulary
        assert all(one.equal(other) for one, other in zip(opened.draw("train", 1, 2), made.draw("train", 1, 2)))


def test_multi30k_is_read_in_its_parts(shared_data):
    folder = shared_data("multi30k-en-de")
    names = {"train": "val", "validation": "test_2017_flickr", "test": "test_2016_flickr"}  # the large part takes long
    files = {
        side: {part: str(folder / f"{name}.{language}.gz") for part, name in names.items()}
        for side, language in (("source", "en"), ("target", "de"))
    }
    task = prepared(**files, level="words", length=48)
    facts = task.data_facts()
    assert facts["documents"] == {"train": 1_014, "validation": 1_000, "test": 1_000}
    assert max(facts["too_long"].values()) == facts["empty"] == 0
    lines = gzip.decompress((folder / "test_2016_flickr.de.gz").read_bytes())
    assert facts["bytes"]["test"] == pytest.approx(len(lines), rel=1e-3)
    assert len(list(task.held_out("test"))) == math.ceil(1_000 / task.held_out_batch)


SEARCH = """
study: translated
space: {space}
task: {{translation: {{source: {source}, target: {target}, length: 24, batch: 4, evaluation: 8}}}}
objectives: [loss, flops]
scheduler: {{full: {{steps: 1}}}}
budget: {{trials: 1}}
"""


def test_the_shipped_space_of_encoder_decoders_can_be_searched_on_it(sentences, root):
    text = SEARCH.format(space=root / "examples" / "spaces" / "seq2seq.yaml", **sentences)
    config = searchfile.parse(text)
    space, random = parts(config).space, Random(1)
    samples = [space.sample(random).architecture for _ in range(12)]
    smallest = min(samples, key=lambda each: cost(each, parts(config).shape).flops)
    outcome = train(smallest.text(), {config.task.name: config.task.options}, steps=1, threads=1)
    assert outcome.failure is None and set(outcome.documents) == {"validation", "test"}


def test_lists_of_files_keep_their_order_and_names_that_do_not_fit_are_told(write, monkeypatch):
    said = []
    monkeypatch.setattr(pairs.log, "warning", lambda text, *names: said.append(text % names))
    lines = [f"{name} {number}" for name in ("one", "two") for number in range(20)]
    write("two.en", lines[20:]), write("one.en", lines[:20]), write("uno.es", lines[:20]), write("dos.es", lines[20:])
    folder = Path(write("x", ["x"])).parent
    source, target = ([str(folder / name) for name in names] for names in (("two.en", "one.en"), ("dos.es", "uno.es")))
    found = pairs.read(source, target, (0.8, 0.1, 0.1))
    every = [pair for part in found.pairs.values() for pair in part]
    assert len(every) >= 38 and all(pair.source == pair.target for pair in every) and not said
    write("one.es", lines[:20]), write("two.es", lines[20:])
    pairs.read(source, [str(folder / name) for name in ("one.es", "two.es")], (0.8, 0.1, 0.1))
    assert len(said) == 2 and "two.en and " in said[0] and "their names belong to other files" in said[0]
