"""The Auto classes of transformers load our folders in a process that cannot see this package."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nas.exports.checking import example_inputs
from nas.exports.formats.huggingface import folder
from nas.exports.native import native
from nas.exports.tokenizer import tokenizer
from nas.exports.winner import Winner
from nas.generation import Sampling, sample
from nas.tasks.vocabulary import Bytes, Characters, Words
from nas.testing import load_published
from searchspace import zoo
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
CHILD = Path(__file__).parent / "load_huggingface.py"
VOCABULARIES = {
    "transformer_decoder": Bytes(),
    "transformer_modern": Bytes(),
    "transformer_xl": Bytes(),
    "reformer": Bytes(),
    "gru": Characters("".join(map(chr, range(32, 32 + 256)))),
    "transformer": Words([f"w{n}" for n in range(62)], ["start", "end"]),
    "seq2seq_lstm": Words([f"w{n}" for n in range(254)], ["start", "end"]),
    "linformer": Bytes(),
    "transformer_encoder": Bytes(),
    "vit": None,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What one process with transformers found in the folders of all models."""
    root = tmp_path_factory.mktemp("folders")
    for name, vocabulary in VOCABULARIES.items():
        architecture = zoo.load(name, "tiny")
        torch.manual_seed(3)
        model = build(architecture).eval()
        about = {} if vocabulary is None else {"vocabulary": vocabulary.to_dict()}
        (root / name).mkdir()
        for file, content in folder(Winner(0, architecture, about, model.state_dict)).items():
            (root / name / file).write_bytes(content)
        inputs = example_inputs(architecture)
        with torch.inference_mode():
            expected = {"inputs": inputs, "outputs": model(*inputs), "symbols": generated(model, inputs, vocabulary)}
        torch.save(expected, root / name / "expected.pt")
    done = subprocess.run([sys.executable, CHILD, root], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def generated(model, inputs, vocabulary):
    """The symbols that we generate greedily."""
    if not hasattr(model, "cannot_stream"):
        return []
    prompt, source = inputs[0][:1, :6], None
    if len(inputs) == 2:
        prompt, source = torch.tensor([[vocabulary.special_symbol("start")]]), prompt
    end = vocabulary.special_symbol("end") if "end" in vocabulary.special else None
    return sample(model, prompt, 8, Sampling(temperature=0), source=source, end=end).symbols


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_outputs_are_ours_and_a_second_save_loads_the_same(name, results):
    assert results[name]["difference"] < 1e-4
    assert results[name]["again"] == 0
    assert results[name]["loss"] < 100


@pytest.mark.parametrize(
    "name", [name for name in VOCABULARIES if name not in ("linformer", "transformer_encoder", "vit")]
)
def test_generate_gives_our_tokens_with_its_cache_and_without(name, results):
    found = results[name]

    assert found["cached"] == found["symbols"]
    assert found["uncached"] == found["symbols"]
    assert found["beams_cached"] == found["beams_uncached"]
    assert found["streams"] == (name != "reformer")


@pytest.mark.parametrize("name", ["transformer_decoder", "transformer_modern", "transformer_encoder"])
def test_a_native_model_has_no_special_symbols_of_the_published_one(name, results):
    """Llama ends at symbol 2, and BERT does not train the embedding of symbol 0."""
    assert results[name]["special"] == [None, None, None]


def test_tokenizers_are_the_vocabularies(results):
    for name, text in {"transformer_decoder": "naïve  text\n", "gru": "a b  c", "transformer": "w3 w1"}.items():
        assert results[name]["tokens"] == VOCABULARIES[name].encode(text)
        assert results[name]["decoded"] == text


def test_a_character_that_the_vocabulary_lacks_is_an_error_as_it_is_for_us():
    from tokenizers import Tokenizer

    made = Tokenizer.from_str(json.dumps(tokenizer(Characters("abc"))["tokenizer.json"]))
    assert made.encode("cab").ids == [2, 0, 1]
    with pytest.raises(Exception, match="UNK"):
        made.encode("caz")


BERT_CLASSES = ("tokens: true", "tokens: false\nclasses: 3\npool: first")


@pytest.mark.parametrize(
    ("name", "change", "known"),
    [
        ("transformer_modern", ("", ""), "llama"),
        ("transformer_modern", ("gated_feed_forward: {", "gated_feed_forward: {gate: gelu, "), None),
        ("transformer_decoder", ("", ""), "gpt2"),
        ("transformer_decoder", ("gelu_tanh", "relu"), "gpt2"),
        ("transformer_decoder", ("bias: true", "bias: false"), None),
        ("transformer_encoder", ("", ""), "bert"),
        ("transformer_encoder", BERT_CLASSES, "bert"),
        ("transformer_encoder", ("of: feed_forward", "of: {feed_forward: {activation: relu}}"), None),
        ("transformer_decoder", ("gelu_tanh}", "gelu_tanh, hidden: 1}"), "gpt2"),
        ("transformer_encoder", ("order: post, of: feed", "order: pre, of: feed"), None),
        ("primer", ("", ""), None),
    ],
)
def test_a_model_that_transformers_knows_needs_no_code_and_another_brings_its_own(name, change, known):
    text = zoo.load(name, "tiny").text()
    assert change[0] in text
    architecture = Architecture.parse(text.replace(*change, 1))
    files = folder(Winner(0, architecture, {}, build(architecture).state_dict))
    assert json.loads(files["config.json"])["model_type"] == (known or "tessera")
    assert ("modeling_tessera.py" in files) == (known is None)
    if known == "gpt2":
        positions = json.loads(files["config.json"])["n_positions"]
        assert json.loads(files["generation_config.json"])["max_length"] == positions + 1


def test_a_bert_has_one_eps_and_one_activation_for_its_layers_and_its_head():
    """transformers has one option for both, so a head that differs is no BERT of theirs."""
    text = zoo.load("transformer_encoder", "tiny").text().replace("{eps: 1.0e-12}", "{eps: 1.0e-3}")
    vectors = Architecture.parse(text.replace("tokens: true", "tokens: false").replace("head: hidden", "head: linear"))
    assert native(Winner(0, vectors, {}, dict), build(vectors).state_dict()) is None, "it has no logits"
    for head, known in [("", None), ("head_eps: 1.0e-3\n", "bert"), ("head_activation: gelu_tanh\n", None)]:
        architecture = Architecture.parse(text + head)
        found = native(Winner(0, architecture, {}, dict), build(architecture).state_dict())
        assert (found and found.config["model_type"]) == known


@pytest.mark.parametrize(
    ("name", "change"),
    [("transformer_decoder", ("gelu_tanh", "relu")), ("transformer_encoder", BERT_CLASSES)],
)
def test_the_weights_of_a_native_model_are_ours(name, change):
    """The inverted rules are undone by the rules that load public weights."""
    architecture = Architecture.parse(zoo.load(name, "tiny").text().replace(*change, 1))
    model = build(architecture)
    found = native(Winner(0, architecture, {}, model.state_dict), model.state_dict())
    layout = found.config["model_type"]
    options = {"heads": 4, "activation": "relu" if layout == "gpt2" else "gelu", "dropout": 0.0, "eps": 1e-12}
    if layout == "gpt2":
        options["eps"] = 1e-5
    again = load_published(name, found.state, layout, **options).state_dict()
    for key, value in model.state_dict().items():
        assert again[key].equal(value), key
