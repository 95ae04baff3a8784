"""What transformers promises of a class: each argument is compared with a plain value, or refused with a sentence.

The results of the checks are the table in docs/exports.md: `python tests/nas/exports/formats/test_interface.py` writes
it.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from nas.exports.formats.huggingface import folder
from nas.exports.winner import Winner
from nas.generation import Sampling, sample
from nas.tasks.vocabulary import Words
from searchspace.contract import Context
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

NEEDED = ("transformers", "accelerate", "peft")
pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in NEEDED), reason="transformers or peft is not installed"
    ),
    pytest.mark.filterwarnings("ignore"),  # those of transformers and peft about their own code
]
PAGE = Path(__file__).resolve().parents[4] / "docs/exports.md"
MARK = "<!-- written by tests/nas/exports/formats/test_interface.py -->"
V, LIMIT = 64, 40  # symbols and learned positions
START, END, MASKED = V - 3, V - 2, V - 1
HEAD = "width: 16\nposition: {learned: {length: 40}}\n"
TEXTS = {
    "CausalLM": f"""
kind: decoder
vocabulary: {V}
tie_embeddings: false
logits_bias: true
{HEAD}
body:
  - residual: {{norm: rms_norm, of: {{attention: {{heads: 2}}}}}}
  - residual: {{of: gru}}
  - residual: {{of: {{convolution: {{kernel: 3}}}}}}
""",
    "Seq2SeqLM": f"""
kind: encoder_decoder
vocabulary: {V}
{HEAD}
encoder: [residual: {{of: {{attention: {{heads: 2}}}}}}, lstm: {{directions: forward}}]
decoder: [lstm: {{start: memory}}, residual: {{of: {{attention: {{heads: 2, over: memory}}}}}}]
""",
    "MaskedLM": f"""
kind: encoder
vocabulary: {V}
tokens: true
segments: 2
logits_bias: true
{HEAD}
body:
  - residual: {{of: {{longformer_attention: {{heads: 2, window: 4, global_at: context, global_tokens: 1}}}}}}
  - residual: {{of: gated_feed_forward}}
""",
    "SequenceClassification": f"""
kind: encoder
vocabulary: {V}
classes: 3
{HEAD}
body: [residual: {{of: {{attention: {{heads: 2}}}}}}, residual: {{of: gated_feed_forward}}]
""",
}
DECODERS = {  # further kinds of decoders, which read padded pieces
    "attention": "[residual: {of: {attention: {heads: 2}}}, residual: {of: gated_feed_forward}]",
    "gru": "gru",
    "lstm": "lstm",
    "linear": "{linear_attention: {heads: 2}}",
    "favor": "{favor_attention: {heads: 2, features: 8}}",
    "window": "{sliding_window_attention: {heads: 2, window: 5}}",
    "convolution": "{convolution: {kernel: 3}}",
    "segments": "{relative_attention: {heads: 2, segment: 6, memory: 4}}",
    "sparse": "{sparse_attention: {heads: 2, stride: 4, pattern: strided}}",
    "spans": "{adaptive_span_attention: {heads: 2, span: 8, ramp: 4}}",
    "universal": "{halting: {times: 3, of: [attention: {heads: 2}]}}",
}
MASKS = [  # padding before, behind, within, and nowhere; three pieces of a sequence
    torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]]),
    torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]),
    torch.tensor([[0, 1], [1, 1], [1, 1], [1, 1]]),
]
MASK = torch.cat(MASKS, dim=1)  # [4, 13]
B, T = MASK.shape
ALL = (*TEXTS, "Model")


@dataclass(frozen=True)
class Subject:
    """A model of ours, and the class of transformers that an Auto class loads for it. kind: the ending of that name."""

    kind: str
    plain: Any
    model: Any
    place: Path

    @property
    def is_pair(self) -> bool:
        return self.kind == "Seq2SeqLM"

    @property
    def first(self) -> str:
        """The prefix of the arguments that the decoder, or the only part, reads."""
        return "decoder_" if self.is_pair else ""

    def inputs(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """The arguments for [B, T]; the source of an encoder-decoder is the same, backwards."""
        if not self.is_pair:
            return {"input_ids": ids} | ({} if mask is None else {"attention_mask": mask})
        masks = {} if mask is None else {"attention_mask": mask.flip(1), "decoder_attention_mask": mask}
        return {"input_ids": ids.flip(1), "decoder_input_ids": ids, **masks}

    def expected(self, ids: torch.Tensor, **context: Any) -> torch.Tensor:
        """What our model returns for rows without padding."""
        if self.kind == "Model":
            return self.states(ids, "body")[-1]
        return self.plain(*((ids.flip(1), ids) if self.is_pair else (ids,)), Context(**context))

    def states(self, ids: torch.Tensor, part: str) -> list[torch.Tensor]:
        """The input of each block in a part of our model, and the output of its norm."""
        seen: list[torch.Tensor] = []
        norm = self.plain.encoder_norm if part == "encoder" else self.plain.final_norm
        blocks = getattr(self.plain, part)
        hooks = [each.register_forward_pre_hook(lambda module, given: seen.append(given[0])) for each in blocks]
        hooks.append(norm.register_forward_hook(lambda module, given, out: seen.append(out)))
        self.plain(*((ids.flip(1), ids) if self.is_pair else (ids,)))
        for hook in hooks:
            hook.remove()
        return seen


@cache
def subject(kind: str, text: str | None = None, **more: Any) -> Subject:
    """The subject of a class; text: of another model."""
    described = text or TEXTS["CausalLM" if kind == "Model" else kind]
    architecture = Architecture.parse(described)
    torch.manual_seed(0)
    plain = build(architecture).eval()
    for parameter in plain.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    vocabulary = Words([f"w{n}" for n in range(START)], ["start", "end", "mask"])
    place = Path(tempfile.mkdtemp(prefix="tessera-interface-")) / f"{kind.lower()}_{architecture.short}"
    place.mkdir()
    winner = Winner(0, architecture, {"vocabulary": vocabulary.to_dict()}, plain.state_dict)
    for name, content in folder(winner).items():
        (place / name).write_bytes(content)
    return Subject(kind, plain, loaded(kind, place, **more), place)


def loaded(kind: str, place: Path, **more: Any) -> Any:
    import transformers

    auto = getattr(transformers, f"AutoModel{'' if kind == 'Model' else 'For' + kind}")
    return auto.from_pretrained(place, trust_remote_code=True, **more).eval()


def symbols(rows: int = B, length: int = T, seed: int = 1) -> torch.Tensor:
    """[rows, length] of symbols that are no special ones."""
    return torch.randint(0, START, (rows, length), generator=torch.Generator().manual_seed(seed))


def near(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def refused(call: Any, **given: Any) -> str:
    """The cell of an argument that is refused: its message."""
    with pytest.raises((ValueError, TypeError)) as error:
        call(**given)
    message = str(error.value)
    assert message.endswith(".") and len(message) < 300, message
    return f"refused: {message}"


def output(found: Any) -> torch.Tensor:
    return found["logits"] if "logits" in found else found[0]


ROWS: dict[str, Callable[[Subject], str]] = {}


def row(check: Callable[[Subject], str]) -> Callable[[Subject], str]:
    """A decorator for the check of a row of the table: it gets a subject, and returns the text of the cell."""
    ROWS[check.__name__] = check
    return check


@row
def attention_mask(s: Subject) -> str:
    found = output(s.model(**s.inputs(symbols(), MASK)))
    for row in range(B):
        if s.kind == "SequenceClassification":
            near(found[row], s.expected(symbols()[row][MASK[row].bool()][None])[0])
        else:
            real = MASK[row].bool()
            near(found[row][real], s.expected(symbols()[row][real][None])[0])
    return "each row as alone, wherever its padding is"


@row
def position_ids(s: Subject) -> str:
    if s.is_pair:
        return refused(s.model, **s.inputs(symbols()), position_ids=torch.arange(T)[None])
    counted = MASK.cumsum(1) - 1
    found = s.model(**s.inputs(symbols(), MASK), position_ids=counted)
    near(output(found), output(s.model(**s.inputs(symbols(), MASK))))
    message = refused(s.model, **s.inputs(symbols(), MASK), position_ids=counted + 1)
    return f"those that it counts; others are {message}"


@row
def token_type_ids(s: Subject) -> str:
    types = (symbols(seed=3) % 2).where(MASK.bool(), 0)
    if s.kind != "MaskedLM":
        return refused(s.model, **s.inputs(symbols()), token_type_ids=types)
    found = s.model(**s.inputs(symbols(), MASK), token_type_ids=types).logits
    for row, real in enumerate(MASK.bool()):
        near(found[row][real], s.expected(symbols()[row][real][None], segments=types[row][real][None])[0])
    return "the segments of our model, if it reads them; else refused"


@row
def global_attention_mask(s: Subject) -> str:
    marks = torch.zeros(B, T, dtype=torch.int64).index_fill(1, torch.tensor([3]), 1)
    if s.kind != "MaskedLM":
        return refused(s.model, **s.inputs(symbols()), global_attention_mask=marks)
    found = s.model(**s.inputs(symbols(), MASK), global_attention_mask=marks).logits
    for row, real in enumerate(MASK.bool()):
        near(found[row][real], s.expected(symbols()[row][real][None], global_positions=marks[row][real][None] > 0)[0])
    return "the global positions of our model, if it reads them; else refused"


@row
def inputs_embeds(s: Subject) -> str:
    table, given = s.model.get_input_embeddings(), s.inputs(symbols(), MASK)
    embeds = {name.replace("input_ids", "inputs_embeds"): table(each) for name, each in given.items() if "ids" in name}
    masks = {name: each for name, each in given.items() if "mask" in name}
    near(output(s.model(**embeds, **masks)), output(s.model(**given)))
    refused(s.model, **embeds, **given)
    refused(s.model, **masks)
    return "rows of the table equal their symbols; both or neither are refused"


@row
def labels(s: Subject) -> str:
    ids = symbols()
    if s.kind == "Model":
        return refused(s.model, **s.inputs(ids), labels=ids)
    if s.kind == "SequenceClassification":
        found = s.model(**s.inputs(ids, MASK), labels=ids[:, 0] % 3)
        near(found.loss, F.cross_entropy(found.logits, ids[:, 0] % 3))
        return "cross-entropy, or that of `problem_type`"
    wanted = symbols(seed=2).index_fill(1, torch.tensor([5]), -100)
    given = wanted if s.kind != "CausalLM" else ids
    found = s.model(**s.inputs(ids, MASK), labels=given)
    near(found.logits, output(s.model(**s.inputs(ids, MASK))))
    losses = []
    for row, real in enumerate(MASK.bool()):
        alone, targets = s.expected(ids[row][real][None])[0], given[row][real]
        if s.kind == "CausalLM":  # a symbol after padding in the middle of a row is not predicted
            pairs = (real[1:] & real[:-1])[real[1:]][-(len(targets) - 1) :]
            alone, targets = alone[:-1][pairs], targets[1:][pairs]
        losses.append(F.cross_entropy(alone, targets, reduction="none")[targets != -100])
    near(found.loss, torch.cat(losses).mean())
    return "the mean loss of the real positions, and the logits without labels"


@row
def num_items_in_batch(s: Subject) -> str:
    if s.kind == "Model":
        return refused(s.model, **s.inputs(symbols()), num_items_in_batch=4)
    given = {**s.inputs(symbols()), "labels": symbols()[:, 0] % 3 if s.kind == "SequenceClassification" else symbols()}
    one, four = (s.model(**given, num_items_in_batch=number).loss for number in (1, 4))
    near(one, 4 * four)
    return "the sum of the losses divided by it"


@row
def past_key_values(s: Subject) -> str:
    if not hasattr(s.model, "generate"):
        return refused(s.model, **s.inputs(symbols()), past_key_values=())
    read_in_pieces(s)
    if not s.is_pair:  # a conversation goes on
        ids, first = symbols(), MASK[:, :6]
        past = s.model(ids[:, :6], attention_mask=first, use_cache=True).past_key_values
        found = s.model.generate(ids, attention_mask=MASK, past_key_values=past, max_new_tokens=4)
        assert torch.equal(found, s.model.generate(ids, attention_mask=MASK, max_new_tokens=4))
    return "each row as alone, with padding in every piece; another cache is refused"


def read_in_pieces(s: Subject) -> None:
    """Three padded pieces of four rows give what each row gives alone."""
    ids, past, outs, ends = symbols(), None, [], [6, 11, 13]
    source = {"encoder_outputs": s.model.get_encoder()(ids.flip(1), MASK.flip(1))} if s.is_pair else {}
    for start, end in zip([0, *ends], ends):
        given = {f"{s.first}input_ids": ids[:, start:end], f"{s.first}attention_mask": MASK[:, :end]}
        more = {"attention_mask": MASK.flip(1)} if s.is_pair else {}
        found = s.model(**given, **more, **source, past_key_values=past, use_cache=True, output_hidden_states=True)
        past = found.past_key_values
        outs.append(found)
    logits = torch.cat([each.logits for each in outs], dim=1)
    for row, real in enumerate(MASK.bool()):
        near(logits[row][real], s.expected(ids[row][real][None])[0])
    changed = {f"{s.first}input_ids": ids[:, :1], f"{s.first}attention_mask": torch.ones(B, T + 1)}
    for wrong in ({"past_key_values": past, **changed}, {"past_key_values": ((ids,),), **s.inputs(ids)}):
        refused(s.model, **{**source, **more, **wrong} if "encoder_outputs" not in wrong else wrong)


@row
def use_cache(s: Subject) -> str:
    if not hasattr(s.model, "generate"):
        return refused(s.model, **s.inputs(symbols()), use_cache=True)
    kept, whole = (s.model(**s.inputs(symbols(), MASK), use_cache=each) for each in (True, False))
    near(kept.logits[MASK.bool()], whole.logits[MASK.bool()])
    assert (kept.past_key_values is None, whole.past_key_values) == (False, None)
    refused(s.model, **s.inputs(symbols()), use_cache=True, labels=symbols())
    return "the same logits with and without; refused with labels"


@row
def logits_to_keep(s: Subject) -> str:
    if s.kind != "CausalLM":
        return refused(s.model, **s.inputs(symbols()), logits_to_keep=2)
    whole = s.model(**s.inputs(symbols())).logits
    near(s.model(**s.inputs(symbols()), logits_to_keep=2).logits, whole[:, -2:])
    near(s.model(**s.inputs(symbols()), logits_to_keep=torch.tensor([1, 4])).logits, whole[:, [1, 4]])
    return "the last logits, or those at the places of a tensor"


@row
def output_hidden_states(s: Subject) -> str:
    found = s.model(**s.inputs(symbols(), MASK), output_hidden_states=True)
    parts = [("decoder", "decoder_hidden_states"), ("encoder", "encoder_hidden_states")]
    for part, name in parts if s.is_pair else [("body", "hidden_states")]:
        for row, real in enumerate(MASK.bool()):
            there = real.flip(0) if part == "encoder" else real
            for ours, theirs in zip(s.states(symbols()[row][real][None], part), found[name], strict=True):
                near(theirs[row][there], ours[0])
    if s.kind == "Model":
        near(found[0], found.hidden_states[-1])
    return "the input of each block, and the output of the last norm"


@row
def output_attentions(s: Subject) -> str:
    return refused(s.model, **s.inputs(symbols()), output_attentions=True)


@row
def return_dict(s: Subject) -> str:
    found = s.model(**s.inputs(symbols()), return_dict=False)
    assert isinstance(found, tuple)
    near(found[0], output(s.model(**s.inputs(symbols()))))
    return "False gives a tuple with the same values"


@row
def another_argument(s: Subject) -> str:
    refused(s.model, **s.inputs(symbols()), head_mask=torch.ones(2))
    return refused(s.model, **s.inputs(symbols()), nonsense=1)


@row
def generate(s: Subject) -> str:
    if not hasattr(s.model, "generate"):
        return "does not generate"
    start = torch.tensor([[START]])
    for row, real in enumerate(MASK.bool()):
        ids = symbols()[row][real][None]
        prompt, source = (start, ids) if s.is_pair else (ids, None)
        expected = sample(s.plain, prompt, 6, Sampling(temperature=0), source=source, end=END).symbols
        for options in ({}, {"use_cache": False}):
            found = s.model.generate(symbols(), attention_mask=MASK, max_new_tokens=6, **options)[row]
            made = found[1 if s.is_pair else T :].tolist()
            assert made[: len(expected)] == expected, (row, options)
    one = s.model.generate(symbols(1), max_new_tokens=5, num_beams=3)
    assert torch.equal(one, s.model.generate(symbols(1), max_new_tokens=5, num_beams=3, use_cache=False))
    if not s.is_pair:
        embeds = s.model.get_input_embeddings()(symbols(1))
        both = [s.model.generate(max_new_tokens=5, **each)[0, -5:].tolist() for each in
                ({"inputs_embeds": embeds}, {"input_ids": symbols(1)})]  # fmt: skip
        assert both[0] == both[1]
    refused(s.model.generate, inputs=symbols(1), max_new_tokens=2, cache_implementation="static")
    refused(s.model.generate, inputs=symbols(1), max_new_tokens=2, output_attentions=True)
    with pytest.raises(ValueError, match="stateful"):
        s.model.generate(symbols(1), max_new_tokens=2, assistant_model=s.model)
    return "our symbols, in padded batches, with a cache and without, with beams"


@row
def length(s: Subject) -> str:
    import transformers

    assert s.model.config.max_position_embeddings == LIMIT
    named = transformers.AutoTokenizer.from_pretrained(s.place, trust_remote_code=True)
    assert named.model_max_length == LIMIT
    if not hasattr(s.model, "generate"):
        return "`max_position_embeddings`"
    s.model.generation_config.eos_token_id = None
    try:
        for options in ({}, {"max_new_tokens": 200}):
            found = s.model.generate(symbols(1, 7), **options)
            assert found.shape[1] in (LIMIT, LIMIT + 1)
    finally:
        s.model.generation_config.eos_token_id = END
    return "`max_position_embeddings`, where `generate` ends"


@row
def resize_token_embeddings(s: Subject) -> str:
    other = loaded(s.kind, s.place)
    before = output(other(**s.inputs(symbols())))
    other.resize_token_embeddings(V + 4)
    with tempfile.TemporaryDirectory() as place:
        other.save_pretrained(place)
        again = loaded(s.kind, Path(place))
    ids = symbols().index_fill(1, torch.tensor([2]), V + 3)
    near(output(again(**s.inputs(ids))), output(other(**s.inputs(ids))))
    found = output(again(**s.inputs(symbols())))
    near(found[..., : before.shape[-1]], before)
    assert again.config.vocab_size == again.get_input_embeddings().num_embeddings == V + 4
    return "is saved and loads with the new size"


@row
def num_labels(s: Subject) -> str:
    if s.kind != "SequenceClassification":
        return "has no classes"
    two = loaded(s.kind, s.place, num_labels=2, ignore_mismatched_sizes=True)
    assert two(**s.inputs(symbols())).logits.shape == (B, 2)
    assert 0.005 < float(two.model.head.weight.std()) < 0.05
    assert float(two.model.head.bias.abs().max()) == 0
    with pytest.raises(RuntimeError, match="mismatch"):
        loaded(s.kind, s.place, num_labels=2)
    return "a new head with `ignore_mismatched_sizes=True`, else refused"


@row
def problem_type(s: Subject) -> str:
    if s.kind != "SequenceClassification":
        return "has no classes"
    several = loaded(s.kind, s.place, problem_type="multi_label_classification")
    targets = (symbols()[:, :3] % 2).float()
    found = several(**s.inputs(symbols()), labels=targets)
    near(found.loss, F.binary_cross_entropy_with_logits(found.logits, targets))
    found = s.model(**s.inputs(symbols()), labels=targets)
    near(found.loss, F.binary_cross_entropy_with_logits(found.logits, targets))
    number = loaded(s.kind, s.place, num_labels=1, ignore_mismatched_sizes=True)
    found = number(**s.inputs(symbols()), labels=targets[:, 0])
    near(found.loss, F.mse_loss(found.logits[:, 0], targets[:, 0]))
    return "single label, multi label, regression"


@row
def gradient_checkpointing(s: Subject) -> str:
    plain, again = loaded(s.kind, s.place).train(), loaded(s.kind, s.place).train()
    again.gradient_checkpointing_enable()
    calls: list[int] = []
    blocks = again.model.encoder if s.is_pair else again.model.body
    blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    for model in (plain, again):
        output(model(**s.inputs(symbols(), MASK))).square().sum().backward()
    assert len(calls) == 2
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            near(other.grad, one.grad)
    refused(again.gradient_checkpointing_enable, gradient_checkpointing_kwargs={"use_reentrant": True})
    return "the same gradients; `use_reentrant=True` is refused"


@row
def lora(s: Subject) -> str:
    import peft

    left: list[str] = []
    while True:
        options = {"target_modules": "all-linear", "exclude_modules": left, "init_lora_weights": False}
        adapted = peft.get_peft_model(loaded(s.kind, s.place), peft.LoraConfig(**options)).eval()
        try:
            changed = output(adapted(**s.inputs(symbols())))
            break
        except ValueError as error:  # in the words of the message: name them in exclude_modules
            assert s.is_pair and "have no effect" in str(error), error
            left += str(error).partition("Adapters of ")[2].partition(" have")[0].split(", ")
    assert left == (["encoder.1.input", "decoder.0.input"] if s.is_pair else [])
    assert float((changed - output(s.model(**s.inputs(symbols())))).abs().max()) > 1e-3
    near(output(adapted.merge_and_unload()(**s.inputs(symbols()))), changed)
    return "equal to the merged weights" + ("; refused for `lstm`, which reads its weights itself" if left else "")


@row
def trainer(s: Subject) -> str:
    import transformers

    if s.kind == "Model":
        return "has no loss"
    other = loaded(s.kind, s.place)
    rows = [s.inputs(each[None]) for each in symbols(8)]
    data = [{name: value[0] for name, value in row.items()} for row in rows]
    for each, row in zip(data, symbols(8)):
        each["labels"] = row[0] % 3 if s.kind == "SequenceClassification" else row
    before = output(other(**s.inputs(symbols()))).detach()
    with tempfile.TemporaryDirectory() as place:
        options = transformers.TrainingArguments(
            place, max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[],
            use_cpu=True, disable_tqdm=True, learning_rate=0.01, gradient_checkpointing=True,
        )  # fmt: skip
        made = transformers.Trainer(other, options, train_dataset=data, eval_dataset=data)
        made.train()
        assert made.evaluate()["eval_loss"] > 0
    assert float((output(other.eval()(**s.inputs(symbols()))) - before).abs().max()) > 1e-3
    return "trains, accumulates and evaluates"


@row
def pipeline(s: Subject) -> str:
    import transformers

    tasks = {"CausalLM": "text-generation", "SequenceClassification": "text-classification", "MaskedLM": "fill-mask"}
    if s.kind not in tasks:
        return "no pipeline"
    tokenizer = transformers.AutoTokenizer.from_pretrained(s.place, trust_remote_code=True)
    made = transformers.pipeline(tasks[s.kind], model=s.model, tokenizer=tokenizer)
    texts = ["w1 <mask> w3", "w4 w5 <mask> w7 w8"]
    more = {"max_new_tokens": 4, "do_sample": False} if s.kind == "CausalLM" else {}
    together, alone = made(texts, batch_size=2, **more), [made(text, **more) for text in texts]
    if s.kind == "CausalLM":
        assert together == alone
    elif s.kind == "SequenceClassification":
        for text, found in zip(texts, together, strict=True):
            expected = s.expected(torch.tensor([tokenizer(text)["input_ids"]])).softmax(-1)
            assert found["score"] == pytest.approx(float(expected.max()), abs=1e-5)
    else:
        for text, found in zip(texts, together, strict=True):
            ids = torch.tensor([tokenizer(text)["input_ids"]])
            expected = s.expected(ids)[0, int((ids[0] == MASKED).nonzero())].softmax(-1)
            assert found[0]["score"] == pytest.approx(float(expected.max()), abs=1e-5)
    return f"`{tasks[s.kind]}`, in batches as alone"


@cache
def cell(name: str, kind: str) -> str:
    """The text of a cell: the check is made."""
    with torch.set_grad_enabled(name in ("gradient_checkpointing", "trainer")):
        return ROWS[name](subject(kind))


def table() -> str:
    """A line for each argument and result, with the classes that have it."""
    lines = ["| argument | class | what it does |", "|---|---|---|"]
    for name in ROWS:
        classes: dict[str, list[str]] = {}
        for kind in ALL:
            classes.setdefault(cell(name, kind), []).append(kind)
        for text, kinds in classes.items():
            lines.append(f"| `{name}` | {'all' if len(kinds) == len(ALL) else ', '.join(kinds)} | {text} |")
    return "\n".join(lines)


@pytest.fixture(scope="module", autouse=True)
def modules_of_transformers(tmp_path_factory):
    """transformers copies the code of our folders into a folder of the tests."""
    quiet(str(tmp_path_factory.mktemp("modules")))


def quiet(place: str) -> None:
    import transformers
    from transformers import dynamic_module_utils

    dynamic_module_utils.HF_MODULES_CACHE = place
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("transformers_modules").setLevel(logging.ERROR)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", ROWS)
def test_an_argument_is_honoured_or_refused(name, kind):
    assert cell(name, kind)


@pytest.mark.parametrize("kind", DECODERS)
def test_padded_pieces_give_what_each_row_gives_alone(kind):
    text = f"kind: decoder\nvocabulary: {V}\n{HEAD}\nbody: {DECODERS[kind]}\n"
    with torch.no_grad():
        read_in_pieces(subject("CausalLM", text))
        attention_mask(subject("CausalLM", text))


def test_the_table_is_in_the_documents():
    assert PAGE.read_text(encoding="utf-8").partition(MARK)[2].partition("\n\n## ")[0].strip() == table(), (
        "run: python tests/nas/exports/formats/test_interface.py"
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    quiet(tempfile.mkdtemp())
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    _, heading, rest = rest.partition("\n\n## ")
    PAGE.write_text(f"{head}{MARK}\n\n{table()}{heading}{rest}", encoding="utf-8")
