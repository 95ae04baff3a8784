"""A folder that the Auto classes of transformers load, without this package."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.exports.bundle import architecture_model, blocks_of, bundled
from nas.exports.formats.safetensors import packed
from nas.exports.header import inside
from nas.exports.native import native
from nas.exports.registry import export_format
from nas.exports.tokenizer import tokenizer
from nas.exports.winner import Winner
from nas.tasks.vocabulary import Vocabulary

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "huggingface"
NONE = "_tied_weights_keys = None"
NO_SPECIAL = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))  # else those of a published model hold
MOST_NEW = 200  # tokens that `generate` makes by default


@export_format("huggingface")
class HuggingFace:
    """config.json, weights, code, tokenizer and generation settings. Loads with `trust_remote_code=True`.

    A model that is exactly a Llama, GPT-2 or BERT uses the class and configuration of transformers, and needs no code.
    """

    def files(self, winner: Winner, path: Path) -> Mapping[Path, bytes]:
        """The files of the folder. Raises NasError if the checkpoint is missing."""
        found = folder(winner)
        return {inside(path, FOLDER, name): content for name, content in found.items()}


def folder(winner: Winner) -> dict[str, bytes]:
    """The content of each file by name."""
    state = winner.weights()
    vocabulary = winner.vocabulary
    special = _special(vocabulary)
    files: dict[str, bytes] = {"generation_config.json": _json(_generation(winner, special))}
    if (known := native(winner, state)) is not None:
        files["config.json"] = _json({**known.config, **NO_SPECIAL, **special})
        files["model.safetensors"] = packed(known.state)
    else:
        files |= _remote(winner, state, special)
    if vocabulary is not None:
        side = "left" if winner.architecture.root.name == "decoder" else "right"  # `generate` goes on at the right
        files |= {name: _json(content) for name, content in tokenizer(vocabulary, side, longest(winner)).items()}
    return files


def _remote(winner: Winner, state: Mapping[str, Tensor], special: Mapping[str, int]) -> dict[str, bytes]:
    """The files of a model with its own code."""
    return {
        "config.json": _json(config(winner, special)),
        "model.safetensors": packed(_once({f"model.{name}": value for name, value in state.items()}, winner)),
        "architecture.py": bundled(winner.architecture).encode(),
        "configuration_tessera.py": _configuration(winner),
        "modeling_tessera.py": _modeling(winner),
    }


def auto_class(winner: Winner) -> tuple[str, str]:
    """The Auto class of transformers for this model, and the class of `modeling_tessera` behind it."""
    fields = winner.architecture.configured.config
    match winner.architecture.root.name:
        case "decoder":
            return "AutoModelForCausalLM", "TesseraForCausalLM"
        case "encoder_decoder":
            return "AutoModelForSeq2SeqLM", "TesseraForSeq2SeqLM"
    if fields.tokens:
        return "AutoModelForMaskedLM", "TesseraForMaskedLM"
    if fields.classes is not None:
        return "AutoModelForSequenceClassification", "TesseraForSequenceClassification"
    return "AutoModel", "TesseraModel"


def config(winner: Winner, special: Mapping[str, int]) -> dict[str, Any]:
    """The content of config.json."""
    auto, own = auto_class(winner)
    fields = winner.architecture.configured.config
    vocabulary = getattr(fields, "vocabulary", None)
    found: dict[str, Any] = {
        "architectures": [own],
        "model_type": "tessera",
        "auto_map": {
            "AutoConfig": "configuration_tessera.TesseraConfig",
            **({} if own == "TesseraForSeq2SeqLM" else {"AutoModel": "modeling_tessera.TesseraModel"}),
            auto: f"modeling_tessera.{own}",
        },
        "sizes": sizes(fields),
        "reads": reads(winner),
        "dtype": "float32",
        "hidden_size": fields.width,
        "tie_word_embeddings": bool(_shared(winner)),  # parameters that several blocks share
        "is_encoder_decoder": winner.architecture.root.name == "encoder_decoder",
        "streams": streams(winner),
        "architecture": winner.architecture.hash,
    }
    if vocabulary is not None:
        found["vocab_size"] = vocabulary
    if getattr(fields, "classes", None) is not None:
        found["num_labels"] = fields.classes
    if length := dict(winner.origin.get("costs") or {}).get("length"):
        found["training_length"] = length
    if most := longest(winner):
        found["max_position_embeddings"] = most
    return found | dict(special)


def sizes(fields: Any) -> dict[str, str]:
    """The fields of the outermost block that follow the configuration of transformers, by their names there."""
    found = {"classes": "num_labels"} if getattr(fields, "classes", None) is not None else {}
    one_table = getattr(fields, "vocabulary", None) is not None and getattr(fields, "source_vocabulary", None) is None
    return found | ({"vocabulary": "vocab_size"} if one_table else {})


def reads(winner: Winner) -> list[str]:
    """What blocks read at each position besides the tokens."""
    configs = [each.config for each in blocks_of(winner.architecture)]
    found = ["segments"] if any(getattr(each, "segments", None) for each in configs) else []
    return [
        *found,
        *(["global_positions"] if any(getattr(each, "global_at", "") == "context" for each in configs) else []),
    ]


def longest(winner: Winner) -> int | None:
    """The most positions that the model can read; None without a limit."""
    limits = [getattr(each.config, "longest", None) for each in blocks_of(winner.architecture)]
    return min((each for each in limits if each is not None), default=None)


def streams(winner: Winner) -> bool:
    """Whether the model keeps a state between pieces."""
    return not getattr(architecture_model(winner.architecture), "cannot_stream", ["an encoder"])


def _special(vocabulary: Vocabulary | None) -> dict[str, int]:
    known = () if vocabulary is None else vocabulary.special
    found: dict[str, int] = {}
    if vocabulary is not None and "end" in known:
        found |= {"eos_token_id": vocabulary.special_symbol("end"), "pad_token_id": vocabulary.special_symbol("end")}
    if vocabulary is not None and "start" in known:
        start = vocabulary.special_symbol("start")
        found |= {"bos_token_id": start, "decoder_start_token_id": start}
    return found


def _generation(winner: Winner, special: Mapping[str, int]) -> dict[str, Any]:
    most = longest(winner)
    return {
        "use_cache": streams(winner),
        **({"max_new_tokens": MOST_NEW} if most is None else {"max_length": most + 1}),
        **special,
    }


def _shared(winner: Winner) -> dict[str, str]:
    """Shared parameters: {each further name: the first name}."""
    places: dict[int, list[str]] = defaultdict(list)
    for name, parameter in architecture_model(winner.architecture).named_parameters(remove_duplicate=False):
        places[id(parameter)].append(f"model.{name}")
    return {other: names[0] for names in places.values() for other in names[1:]}


def _once(state: Mapping[str, Tensor], winner: Winner) -> dict[str, Tensor]:
    """`state` without the further names of shared parameters: transformers ties them again."""
    further = _shared(winner)
    return {name: value for name, value in state.items() if name not in further}


def _configuration(winner: Winner) -> bytes:
    """The class of the configuration.

    In one process, transformers uses one class of models for one class of configurations. It takes equal files in
    folders of one name for one class, so the file names its architecture.
    """
    return _template("configuration_tessera").replace(b"{architecture}", winner.architecture.hash.encode())


def _modeling(winner: Winner) -> bytes:
    """The code, with the names that share a parameter."""
    tied = _shared(winner)
    listed = "".join(f'        "{one}": "{other}",\n' for one, other in sorted(tied.items()))
    text = _template("modeling_tessera").decode()
    return text.replace(NONE, f"_tied_weights_keys = {{\n{listed}    }}" if tied else NONE).encode()


def _template(name: str) -> bytes:
    return resources.files("nas.exports").joinpath("templates", f"{name}.py.txt").read_bytes()


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
