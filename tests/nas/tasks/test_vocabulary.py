"""One way from text to symbols: what a task trains on, `vocabulary.encode`, and the exported tokenizer agree."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nas.exports.tokenizer import tokenizer
from nas.tasks.text.pairs import Coder
from nas.tasks.vocabulary import Bytes, Characters, Sentences, Vocabulary

transformers = pytest.importorskip("transformers")

WORDS = ["The", "cat", "at", "noon", ",", ".", "don", "'", "t", "café", "日本語", "हिन", "<", "end", ">", "½", "_a-9"]
LETTERS = "".join(map(chr, range(32, 0x180))) + "日本語हिन्दी\t\n\x1c\u00a0\u200d\u2003👩"
VOCABULARIES = [
    Sentences(WORDS, ["unknown", "start", "end"]),
    Bytes(["start", "end"]),
    Characters(LETTERS, ["start", "end"]),
]
TEXT = st.lists(st.sampled_from([*WORDS, *LETTERS, " ", "<end>", "<unknown>", "dog"]), max_size=30).map("".join)


@pytest.fixture(scope="module", params=VOCABULARIES, ids=lambda each: each.kind)
def both(request, tmp_path_factory):
    """A vocabulary and its exported tokenizer."""
    folder = tmp_path_factory.mktemp("tokenizer")
    for name, content in tokenizer(request.param).items():
        (folder / name).write_text(json.dumps(content))
    return request.param, transformers.AutoTokenizer.from_pretrained(folder)


@settings(deadline=None)
@given(TEXT)
@example("The red cat, at noon, ...")
@example("")
@example("<start>The cat<end>")
def test_a_task_a_prompt_and_an_exported_tokenizer_make_the_same_symbols(both, text):
    vocabulary, exported = both
    symbols = vocabulary.encode(text)
    assert exported(text, add_special_tokens=False)["input_ids"] == symbols
    assert Vocabulary.from_dict(vocabulary.to_dict()).encode(text) == symbols
    if not isinstance(vocabulary, Characters):  # translation has none of characters
        coder = Coder(vocabulary)
        encoded, widths = coder.encode(text)
        assert encoded.tolist() == [*symbols, coder.end] and widths.sum() == len(text.encode()) + 1


def test_a_mark_needs_no_space_and_a_rare_word_is_the_unknown_symbol():
    vocabulary = VOCABULARIES[0]
    assert vocabulary.decode(vocabulary.encode("The dog, at noon.")) == "The <unknown> , at noon ."
