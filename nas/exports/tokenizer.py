"""A vocabulary as the files of a Hugging Face tokenizer: `tokenizer.json` and `tokenizer_config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nas.errors import UsageError
from nas.tasks.vocabulary import Bytes, Characters, Sentences, Vocabulary, Words

# `nas.tasks.vocabulary.WORD` as Oniguruma reads it, whose \\w and \\s are other characters than those of Python.
WORD_OR_MARK = r"[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s\x{1c}-\x{1f}]"
PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]


def tokenizer(vocabulary: Vocabulary, side: str = "right", most: int | None = None) -> dict[str, Mapping[str, Any]]:
    """The content of each file by name. side: where a batch is padded, left or right. most: positions of the model.

    Raises UsageError for a kind of vocabulary that has no tokenizer.
    """
    special = [
        {
            "id": vocabulary.special_symbol(name),
            "content": f"<{name}>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for name in vocabulary.special
    ]
    made = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "post_processor": None,
        **_model(vocabulary),
    }
    named = {name: f"<{name}>" for name in vocabulary.special}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        # A symbol's name in a text is text. People write the mask and the words of synthetic tasks by name.
        "split_special_tokens": "mask" not in named and type(vocabulary) is not Words,
        "padding_side": side,
        "model_input_names": ["input_ids", "attention_mask"],
        **({} if most is None else {"model_max_length": most}),
        **({"eos_token": named["end"], "pad_token": named["end"]} if "end" in named else {}),
        **({"bos_token": named["start"]} if "start" in named else {}),
        **({"mask_token": named["mask"]} if "mask" in named else {}),
        **({"unk_token": named["unknown"]} if "unknown" in named else {}),
    }
    return {"tokenizer.json": made, "tokenizer_config.json": config}


def _model(vocabulary: Vocabulary) -> dict[str, Any]:
    unknown = "<unknown>" if "unknown" in vocabulary.special else None
    if isinstance(vocabulary, Bytes):
        return {
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
            "model": _bpe({character: byte for byte, character in enumerate(_characters_of_bytes())}),
        }
    if isinstance(vocabulary, Characters):
        each = {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": False}
        numbers = {character: number for number, character in enumerate(vocabulary.characters)}
        return {"pre_tokenizer": each, "decoder": {"type": "Fuse"}, "model": _word_level(numbers, unknown)}
    if isinstance(vocabulary, Sentences):
        numbers = {word: number for number, word in enumerate(vocabulary.words)}
        numbers |= {f"<{name}>": vocabulary.special_symbol(name) for name in vocabulary.special}
        words = {"type": "Split", "pattern": {"Regex": WORD_OR_MARK}, "behavior": "Removed", "invert": True}
        return {"pre_tokenizer": words, "decoder": None, "model": _word_level(numbers, unknown)}
    if isinstance(vocabulary, Words):
        numbers = {word: number for number, word in enumerate(vocabulary.words)}
        numbers |= {f"<{name}>": vocabulary.special_symbol(name) for name in vocabulary.special}
        spaces = {"type": "WhitespaceSplit"}
        return {"pre_tokenizer": spaces, "decoder": None, "model": _word_level(numbers, unknown)}
    raise UsageError(f"A vocabulary of the kind {vocabulary.kind!r} cannot become a tokenizer.")


def _bpe(vocabulary: dict[str, int]) -> dict[str, Any]:
    """Byte pairs without a single merge: each byte is a token."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": vocabulary,
        "merges": [],
    }


def _word_level(vocabulary: dict[str, int], unknown: str | None) -> dict[str, Any]:
    # Without a symbol for them, unknown words are an error, as they are for `Vocabulary.encode`.
    return {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown or "<unknown>"}


def _characters_of_bytes() -> list[str]:
    """The character that a byte-level tokenizer writes for each byte: itself if it is printable, else one above 255."""
    found, above = [], 256
    for byte in range(256):
        found.append(chr(byte if byte in PRINTABLE else above))
        above += byte not in PRINTABLE
    return found
