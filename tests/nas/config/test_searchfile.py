"""A search file says what is wrong with it: every problem at once, each with its line, its path and a way out."""

from pathlib import Path
from random import Random

import pytest

from nas.config import checks, searchfile
from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.errors import UsageError
from nas.store import open_store
from nas.tasks.vision.digits import Digits
from searchspace.errors import SpaceError
from searchspace.language import documents

GOOD = """\
study: mine
space:
  kind: decoder
  width: !choice [32, 64]
  vocabulary: 256
  body: {residual: !choice [attention, feed_forward]}
task: {language_model: {length: 64}}
recipe: {learning_rate: 1e-3}
objectives: [bits_per_byte, flops]
strategy: {nsga2: {population: 8}}
scheduler: {halving: {rungs: [10, 30]}}
runner: {ray: {workers: 2, memory: 2GiB}}
budget: {trials: 8, minutes: 1}
finals: {top: 1}
limits: {unit_seconds: 60}
"""

LAST = "limits: {unit_seconds: 60}"
WRONG_CRITERION = (
    "criterion is mean_squared_error, but the targets of the task LanguageModel are classes. "
    "Criteria for these: cross_entropy."
)
MISTAKES = {  # what is written instead, and what is said of it
    "study: 'a b'": ("study: mine", "1: study: must begin with a letter from a to z or a digit", "'a b'"),
    "objectives: []": (
        "objectives: [bits_per_byte, flops]",
        "9: objectives: must have at least 1 item, but found []",
        "",
    ),
    "{language_model: {data: 5}}": (
        "{language_model: {length: 64}}",
        "7: task.language_model: task 'language_model', option 'data': must be a path, a pattern such as texts/*.txt",
        "but got 5",
    ),
    "width: !choice [32, 6x]": ("width: !choice [32, 64]", "4: space.width", "6x"),
    "residual: !choice [attenton]": ("residual: !choice [attention, feed_forward]", "6: space.body", "'attention'?"),
    "kind: encoder\n  classes: 3": ("kind: decoder", "2: space: The task LanguageModel needs kind: decoder", "encoder"),
    "vocabulary: 100": ("vocabulary: 256", "2: space", "vocabulary: 256, but the space has vocabulary: 100"),
    "vocabulary: !choice [100, 256]": ("vocabulary: 256", "2: space", "has vocabulary: !choice [100, 256]"),
    "{languge_model: {}}": (
        "{language_model: {length: 64}}",
        "7: task.languge_model",
        "Did you mean 'language_model'?",
    ),
    "{lenth: 64}": ("{length: 64}", "7: task.language_model", "has no option 'lenth'. Did you mean 'length'?"),
    "missing.py": ("{language_model: {length: 64}}", "7: task", "missing.py cannot be read"),
    "{learning_rat: 1}": ("{learning_rate: 1e-3}", "8: recipe", "Did you mean 'learning_rate'?"),
    "{warmup: -1}": ("{learning_rate: 1e-3}", "8: recipe", "-1"),
    "[error, flops]": ("[bits_per_byte, flops]", "9: objectives[0]", "language_model reports no metric 'error'. It"),
    "[{metric: bits_per_bite}]": ("[bits_per_byte, flops]", "9: objectives[0]", "Did you mean 'bits_per_byte'?"),
    "{lr: 1e-3}": ("{learning_rate: 1e-3}", "8: recipe", "Did you mean 'learning_rate'?"),
    "{optimiser: {adamw: {beta: 1}}}": ("{learning_rate: 1e-3}", "8: recipe", "Did you mean 'betas'?"),
    "vocabulary: 257": ("vocabulary: 256", "2: space", "vocabulary: 256, but the space has vocabulary: 257"),
    "[bits_per_byte, flps]": ("[bits_per_byte, flops]", "9: objectives[1]", "Did you mean 'flops'?"),
    "[flops, flops]": ("[bits_per_byte, flops]", "9: objectives", "more than one flops"),
    "[{metric: a, direction: up}]": ("[bits_per_byte, flops]", "9: objectives[0]", "up"),
    "[gradient_norm, bits_per_byte]": (
        "[bits_per_byte, flops]",
        "9: objectives[0]",
        "decides the finals, so it must be a metric of the trained model, but gradient_norm is found by a probe",
    ),
    "[flops, bits_per_byte]": ("[bits_per_byte, flops]", "9: objectives[0]", "put bits_per_byte first"),
    "[{metric: bits_per_byte, direction: maximize}]": (
        "[bits_per_byte, flops]",
        "9: objectives[0]",
        "bits_per_byte is better when it is lower",
    ),
    "{nsga4: {}}": ("{nsga2: {population: 8}}", "10: strategy.nsga4", "Did you mean 'nsga3'?"),
    "{populaton: 8}": ("{population: 8}", "10: strategy.nsga2", "Did you mean 'population'?"),
    "{population: many}": ("{population: 8}", "10: strategy.nsga2", "many"),
    "strategy: {optuna: TPESample}": ("strategy: {nsga2: {population: 8}}", "10: strategy", "'TPESampler'?"),
    "{optuna: {sampler: TPESampler, startup: 1}}": ("{nsga2: {population: 8}}", "10: strategy", "no option 'startup'"),
    "{halvig: {rungs: [1]}}": ("{halving: {rungs: [10, 30]}}", "11: scheduler.halvig", "Did you mean 'halving'?"),
    "{rungs: [30, 10]}": ("{rungs: [10, 30]}", "11: scheduler.halving", "must ascend"),
    "scheduler: [full]": ("scheduler: {halving: {rungs: [10, 30]}}", "11: scheduler", "a name with its options"),
    "{rey: {}}": ("{ray: {workers: 2, memory: 2GiB}}", "12: runner.rey", "Did you mean 'ray'?"),
    "worker: 2": ("workers: 2", "12: runner.ray", "has no option 'worker'. Did you mean 'workers'?"),
    "memory: 2GiBs": ("memory: 2GiB", "12: runner.ray", "option 'memory': Expected a number such as"),
    "cpus: 100000": ("workers: 2", "12: runner.ray", "option 'cpus': must be less than or equal to 1024"),
    "{inline: {workers: 2}}": (
        "{ray: {workers: 2, memory: 2GiB}}",
        "12: runner.inline",
        "has no option 'workers'. Its options: process",
    ),
    "trals: 8": ("trials: 8", "13: budget", "Did you mean 'trials'?"),
    "trials: 100000000000": (
        "trials: 8",
        "13: budget.trials",
        "less than or equal to 2147483647, but found 100000000000",
    ),
    "trials: 0": ("trials: 8", "13: budget.trials", "greater than or equal to 1, but found 0"),
    "minutes: .inf": ("minutes: 1", "13: budget.minutes", "finite"),
    "budgt: {trials: 8, minutes: 1}": ("budget: {trials: 8, minutes: 1}", "13: budgt", "Did you mean 'budget'?"),
    "top: !choice [1, 2]": ("top: 1", "14: finals.top", "a hole cannot stand here"),
    "{seconds: 60}": ("{unit_seconds: 60}", "15: limits.seconds", "Did you mean 'unit_seconds'?"),
    "limits: {}\narms: {control: {strategy: randm, share: 0.2}}": (
        LAST,
        "16: arms.control.strategy",
        "Did you mean 'random'?",
    ),
    "limits: {}\nstorage: mysql://x": (LAST, "16: storage", "not in 'mysql'"),
    "limits: {}\nbaselines: [transformr]": (LAST, "16: baselines[0]", "Did you mean 'transfor"),
    "limits: {}\nbaselines: [transformer]": (LAST, "16: baselines[0]", "kind: decoder"),
    # a key under another name, or in another part
    "sapce:": ("space:", "2: sapce", "there is no 'sapce' here. Did you mean 'space'?"),
    "conrol: {random: 0.2}": (LAST, "15: conrol", "there is no 'conrol' here. Did you mean 'control'?"),
    "nonsense: 1": (LAST, "15: nonsense", "control"),
    "learning_rate: 1": (LAST, "15: learning_rate", "It belongs to `recipe: {learning_rate: 1e-3}`."),
    "optimizer: adam": (LAST, "15: optimizer", "It belongs to `recipe: {optimiser: adamw}`."),
    "workers: 4": (LAST, "15: workers", "It belongs to `runner: {ray: {workers: 2}}`."),
    "data: x.txt": (LAST, "15: data", "It is an option of the task, as in `task: {language_model: {da"),
    "epochs: 2": (LAST, "15: epochs", "Training is counted in steps, as in `scheduler: {full: {steps: 1"),
    "{epochs: 2}": ("{trials: 8, minutes: 1}", "13: budget.epochs", "Did you mean 'steps'?"),
    "{criterion: mse}": ("{learning_rate: 1e-3}", "8: recipe", "Did you mean 'mean_squared_error'?"),
    "{rungs: [10, 30], factr: 3, factor: 0}": ("{rungs: [10, 30]}", "11: scheduler.halving", "has 2 mistakes:"),
    # parts that do not fit each other
    "limits: {}\ndevice: tpu": (LAST, "16: device", "there is no device 'tpu'; devices are"),
    "[bits_per_byte, {latency: {device: gpu}}]": ("[bits_per_byte, flops]", "9: objectives[1]", "no device 'gpu'"),
    "{top: 1, match: latency}": ("{top: 1}", "14: finals.match", "the process of the search must measure it"),
    "{criterion: mean_squared_error}": ("{learning_rate: 1e-3}", "8: recipe.criterion", WRONG_CRITERION),
    "{top: 1, tune: {criterion: [mean_squared_error]}}": ("{top: 1}", "14: finals.tune", WRONG_CRITERION),
    "limits: {}\nbaselines: [transformer_decoder:99999]": (LAST, "16: baselines[0]", "There is no "),
    "limits: {}\ncontrol: random": (LAST, "16: control", "must be strategies with their share of the trials"),
    "limits: {}\ncontrol: {random: 2}": (LAST, "16: control.random", "share must be less than 1"),
    "limits: {}\ncontrol: {random: 0.2, model: 0.9}": (LAST, "16: control", "sum to less than 1, so that"),
    "limits: {}\ncontrol: {randm: 0.2}": (LAST, "16: control.randm", "No strategy is called 'randm'"),
    "limits: {}\ncontrol: [gone.yaml]": (LAST, "16: control[0]", "There is no file"),
    "limits: {}\ncontrol: {mine: [gone.yaml]}": (LAST, "16: control.mine[0]", "There is no file"),
    "limits: {}\ncontrol: {random: 0.2}\narms: [random]": (LAST, "17: arms", "must be a mapping, but found"),
}


def refusal(text, folder="."):
    with pytest.raises(UsageError) as caught:
        searchfile.parse(text, "search.yaml", folder)
    return str(caught.value)


def test_a_good_file_is_read():
    config = searchfile.parse(GOOD)
    assert config.storage == "sqlite:///runs/mine.db" and config.checkpoints == "runs/mine"
    assert config.strategy.options == {"population": 8}


def test_a_part_with_nothing_below_it_is_left_out():
    for part in ("finals: {top: 1}\n", "limits: {unit_seconds: 60}\n", "recipe: {learning_rate: 1e-3}\n"):
        assert part in GOOD
        key, _, _ = part.partition(":")
        assert searchfile.parse(GOOD.replace(part, f"{key}:\n")) == searchfile.parse(GOOD.replace(part, ""))
    assert searchfile.parse(GOOD + "control: null\nbaselines:\narms:\nblocks:\n") == searchfile.parse(GOOD)


def test_an_option_can_be_set_of_a_part_with_nothing_below_it(tmp_path):
    path = tmp_path / "search.yaml"
    path.write_text(GOOD.replace("finals: {top: 1}", "finals:"))
    assert searchfile.load(path, ["finals.top=1"]).finals == searchfile.parse(GOOD).finals


@pytest.mark.parametrize("wrong", MISTAKES)
def test_each_mistake_is_named_with_its_line_its_path_and_a_way_out(wrong):
    right, place, hint = MISTAKES[wrong]
    assert right in GOOD
    said = refusal(GOOD.replace(right, wrong, 1))
    assert any(line.startswith(f"search.yaml:{place}") for line in said.splitlines()), said
    assert hint in said


def test_a_baseline_without_a_vocabulary_is_told_so(tmp_path):
    (tmp_path / "vector.yaml").write_text("kind: encoder\nwidth: 8\nfeatures: 4\nclasses: 3\nbody: gru\n")
    assert "has no vocabulary" in refusal(GOOD + "baselines: [vector.yaml]\n", tmp_path)


def test_all_mistakes_are_named_at_once():
    text = GOOD
    for right, wrong in [
        ("attention", "attenton"),
        ("flops", "flps"),
        ("nsga2", "nsga4"),
        ("[10, 30]", "[30, 10]"),
        ("workers", "worker"),
        ("trials", "trals"),
        ("length", "lenth"),
        ("top", "topp"),
        ("learning_rate", "learning_rat"),
    ]:
        text = text.replace(right, wrong)
    lines = {line.split(": ")[0] for line in refusal(text).splitlines()}
    assert lines == {f"search.yaml:{line}" for line in (6, 7, 8, 9, 10, 11, 12, 13, 14)}


CONTINUED = GOOD.replace("{length: 64}", "{length: 64, segments: 4}").replace("finals: {top: 1}\n", "")


def test_consecutive_segments_need_blocks_that_can_read_in_pieces():
    searchfile.parse(CONTINUED)
    for space, blocks in [
        ("{residual: !choice [gru, lsh_attention]}", "lsh_attention cannot"),
        ("{repeat: {times: 2, of: [lsh_attention, feed_forward]}}", "lsh_attention cannot"),
    ]:
        text = CONTINUED.replace("{residual: !choice [attention, feed_forward]}", space)
        said = refusal(text)
        assert "2: space: The task LanguageModel has segments: 4, so every block must read" in said and blocks in said
        searchfile.parse(text.replace(", segments: 4", ""))
    assert "baselines[0]: The task LanguageModel has segments: 4" in refusal(CONTINUED + "baselines: [reformer:tiny]\n")


def test_models_must_have_positions_for_all_consecutive_segments():
    learned = CONTINUED.replace("  vocabulary: 256\n", "  position: {learned: {length: 255}}\n")
    with pytest.raises(SpaceError, match="supports at most 255 positions, but would read 256"):
        parts(searchfile.parse(learned)).space.sample(Random(0))
    parts(searchfile.parse(learned.replace("255", "256"))).space.sample(Random(0))


@pytest.mark.parametrize("key", ["study", "space", "task", "objectives", "scheduler", "budget"])
def test_a_missing_part_is_named(key):
    kept, inside = [], False
    for line in GOOD.splitlines():
        inside = line.startswith(f"{key}:") or (inside and line.startswith(" "))
        if not inside:
            kept.append(line)
    said = refusal("\n".join(kept))
    assert said == f"search.yaml:1: {key}: {key!r} is missing"


@pytest.mark.parametrize("text", ["", "[]", "7", "study", "!choice [1]", "a: [", "study: !!python/name:os.system x"])
def test_what_is_no_search_file_is_refused(text):
    assert refusal(text).startswith("search.yaml:")


def test_a_space_in_a_file_of_its_own_is_blamed_by_that_files_line(tmp_path):
    text = GOOD.replace(GOOD[GOOD.index("space:") : GOOD.index("task:")], "space: space.yaml\n")
    assert refusal(text, tmp_path).startswith("search.yaml:2: space: Cannot read")
    (tmp_path / "space.yaml").write_text("kind: decoder\nwidth: 32\nvocabulary: 256\nbody: attenton\n")
    assert refusal(text, tmp_path).startswith(f"{tmp_path}/space.yaml:4: body: No block is called 'attenton'.")


def test_what_the_users_own_task_raises_is_told_with_its_line(tmp_path):
    text = GOOD.replace("{language_model: {length: 64}}", "mine.py")
    for source, hint in [
        ("import nowhere\n", 'mine.py", line 1'),
        ("x = 1\ny = 1 / 0\n", 'mine.py", line 2'),
        ("def broken(:\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit"),
        ("raise GeneratorExit\n", "GeneratorExit"),
        ("raise BaseException('all')\n", "BaseException: all"),
        (OWN.replace('return {"kind"', 'raise SystemExit(0)\n        return {"kind"'), 'mine.py", line 11'),
        ("x = 1\n", "must define one complete subclass"),
    ]:
        (tmp_path / "mine.py").write_text(source)
        said = refusal(text, tmp_path)
        assert said.startswith("search.yaml:7: task: ") and hint in said, said


def test_a_study_keeps_all_that_it_needs(tmp_path):
    config = searchfile.parse(GOOD + "baselines: [transformer_decoder:small]\n")
    assert config.baselines[0].startswith("kind: decoder")
    again = SearchConfig.model_validate_json(config.model_dump_json())
    assert again == config


def test_data_that_are_not_there_are_named(tmp_path):
    text = GOOD.replace("{length: 64}", "{data: 'texts/*.txt'}")
    assert refusal(text, tmp_path).startswith(f"search.yaml:7: task.language_model: data: no file matches '{tmp_path}")


OWN = """
import torch
from torch.nn import functional as F
from nas.tasks import Metric, Task


class Own(Task):
    length = 12

    def requires(self):
        return {"kind": "decoder", "vocabulary": 2}

    def draw(self, split, seed, index):
        return torch.zeros(16, 12, dtype=torch.int64)

    def loss(self, model, batch, context):
        return F.cross_entropy(model(batch, context).flatten(0, 1), batch.flatten())

    def metrics(self, model, batches):
        return {"accuracy": 1.0}
"""


def own(objectives):
    text = GOOD.replace("{language_model: {length: 64}}", "own.py").replace("  vocabulary: 256\n", "")
    return text.replace("[bits_per_byte, flops]", objectives)


def test_an_own_task_is_checked_if_it_declares_its_metrics(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    declared = OWN.replace("length = 12", "length = 12\n    reports = (Metric('accuracy', 'maximize'),)")
    (tmp_path / "own.py").write_text(declared)
    assert "own.py reports no metric 'error'. It reports: accuracy" in refusal(own("[error]"), tmp_path)
    assert "direction: maximize" in refusal(own("[{metric: accuracy}]"), tmp_path)
    for written in ("{metric: accuracy, direction: maximize}", "{metric: run/steps}", "{metric: test/accuracy}"):
        searchfile.parse(own(f"[{written}, parameters]"), "search.yaml", tmp_path)
    (tmp_path / "own.py").write_text(OWN.replace("    def metrics", "    def other"))
    searchfile.parse(own("[loss]"), "search.yaml", tmp_path)
    assert "It reports: loss" in refusal(own("[error]"), tmp_path)


def test_reports_are_metrics(tmp_path):
    (tmp_path / "own.py").write_text(OWN.replace("length = 12", "length = 12\n    reports = ('accuracy',)"))
    assert "Own.reports must be a tuple of nas.tasks.Metric, but is ('accuracy',)" in refusal(
        own("[{metric: accuracy}]"), tmp_path
    )


def test_a_criterion_for_a_task_with_its_own_loss_is_rejected(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    text = own("[error]").replace("{learning_rate: 1e-3}", "{criterion: cross_entropy}")
    assert "search.yaml:7: recipe.criterion: criterion is cross_entropy, but the task Own computes" in refusal(
        text, tmp_path
    )


def test_a_task_of_the_user_that_declares_no_targets_takes_any_criterion(tmp_path):
    text = own("[{metric: accuracy}]").replace("{learning_rate: 1e-3}", "{criterion: mean_squared_error}")
    outputs = OWN.replace("def loss", "def outputs")
    (tmp_path / "own.py").write_text(outputs)
    searchfile.parse(text, "search.yaml", tmp_path)
    (tmp_path / "own.py").write_text(
        outputs.replace("class Own(Task):", "class Own(Task):\n    target_kind = 'classes'")
    )
    assert "the targets of the task Own are classes" in refusal(text, tmp_path)


def test_fields_that_the_task_decides_may_be_left_out():
    left_out = searchfile.parse(GOOD.replace("  vocabulary: 256\n", ""))
    assert left_out.space == searchfile.parse(GOOD).space
    seq2seq = GOOD.replace("language_model", "reversal").replace("[bits_per_byte, flops]", "[error]")
    seq2seq = seq2seq.replace("decoder", "encoder_decoder").replace(
        "body: ", "decoder: {attention: {over: memory}}\n  encoder: "
    )
    assert "vocabulary: 257" in searchfile.parse(seq2seq.replace("  vocabulary: 256\n", "")).space
    assert "needs vocabulary: 257" in refusal(seq2seq)
    images = GOOD.replace("{language_model: {length: 64}}", "digits").replace("[bits_per_byte, flops]", "[error]")
    images = images.replace("decoder", "encoder")
    assert "features: 4\nclasses: 10" in searchfile.parse(images.replace("  vocabulary: 256\n", "")).space
    assert "needs features: 4, but the space has no features" in refusal(images)


def test_baselines_get_the_fields_that_the_task_decides(tmp_path):
    text = GOOD.replace("language_model", "reversal").replace("[bits_per_byte, flops]", "[error]")
    text = text.replace("decoder", "encoder_decoder").replace(
        "body: ", "decoder: {attention: {over: memory}}\n  encoder: "
    )
    text = text.replace("  vocabulary: 256\n", "") + "baselines: [transformer:tiny, mine.yaml]\n"
    (tmp_path / "mine.yaml").write_text(
        "{kind: encoder_decoder, width: 8, encoder: feed_forward, decoder: {attention: {over: memory}}}"
    )
    config = searchfile.parse(text, "search.yaml", tmp_path)
    assert all("vocabulary: 257" in baseline for baseline in config.baselines)


def test_the_file_of_a_baseline_gets_optional_fields_that_the_task_decides(tmp_path, monkeypatch):
    """Without `classes` it is a complete encoder, but one that the task does not fit."""
    (tmp_path / "mine.yaml").write_text("kind: encoder\nwidth: 16\nbody:\n- attention: {heads: 2}\nfeatures: 4\n")
    absolute = str(tmp_path / "mine.yaml")
    for name, folder in (("mine.yaml", tmp_path), (absolute, tmp_path / "elsewhere")):
        assert checks.find_baseline(name, folder, Digits()).root.fields["classes"] == 10
    monkeypatch.chdir(tmp_path)
    assert checks.find_baseline("mine.yaml", Path(), Digits()).root.fields["classes"] == 10


@pytest.mark.parametrize(
    "key",
    ["baselines: [mine.yaml]", "control: {random: 0.2, list: [mine.yaml]}", "finals: {top: 1, baselines: [mine.yaml]}",
     "space: mine.yaml", "blocks: [mine.py]", "task: mine.py", "task: {language_model: {data: mine.txt}}"],
)  # fmt: skip
def test_each_path_is_relative_to_the_folder_of_the_search_file_alone(key, tmp_path, monkeypatch):
    """The working folder has all these files, and the folder of the search file has similar names."""
    for name in ("mine.yaml", "mine.py", "mine.txt", "sub/mines.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("kind: decoder\nwidth: 16\nvocabulary: 256\nbody: attention\n")
    monkeypatch.chdir(tmp_path)
    name = key.partition(":")[0]
    lines = [line for line in GOOD.splitlines() if not line.startswith(name)]
    if name == "space":
        lines = [line for line in lines if not line.startswith("  ")]
    (tmp_path / "sub" / "search.yaml").write_text("\n".join([*lines, key]))
    with pytest.raises(UsageError) as caught:
        searchfile.load("sub/search.yaml")
    said = str(caught.value)
    assert "sub/mine." in said and f":{len(lines) + 1}: {name}" in said
    if "yaml" in key and name != "space":
        assert "There is no file 'sub/mine.yaml'. Did you mean 'mines.yaml'?" in said


def test_a_space_is_no_search_file_and_the_error_says_what_is(tmp_path):
    (tmp_path / "space.yaml").write_text("kind: decoder\nwidth: !choice [8, 16]\nbody: attention\n")
    with pytest.raises(UsageError, match=r"space\.yaml:1: this file is a space .* not a search file") as caught:
        searchfile.load(tmp_path / "space.yaml")
    assert "space: FILE" in str(caught.value) and "nas space FILE" in str(caught.value)


def test_a_search_file_and_its_space_are_read_once(tmp_path, monkeypatch):
    (tmp_path / "space.yaml").write_text(GOOD[GOOD.index("  kind") : GOOD.index("task:")].replace("\n  ", "\n")[2:])
    inline = GOOD[GOOD.index("space:") : GOOD.index("task:")]
    (tmp_path / "search.yaml").write_text(GOOD.replace(inline, "space: space.yaml\n"))
    read = []
    original = documents.parse
    monkeypatch.setattr(
        documents, "parse", lambda text, source, tags: read.append(source) or original(text, source, tags)
    )
    config = searchfile.load(tmp_path / "search.yaml")
    parts(config).strategy(config.strategy, parts(config).space)
    assert read == [str(tmp_path / "search.yaml"), str(tmp_path / "space.yaml")]


def test_a_file_of_unknown_keys_gets_a_short_answer():
    """90,000 unknown keys printed 20 MB."""
    with pytest.raises(UsageError) as caught:
        searchfile.parse(GOOD + "".join(f"unknown{index}: 1\n" for index in range(3000)))
    assert len(str(caught.value)) < 16_000 and "there is no 'unknown0' here" in str(caught.value)


@pytest.mark.parametrize("part", ["baselines", "objectives", "arms"])
def test_parts_that_take_time_to_check_are_limited(part):
    """A file could name 80,000 baselines, each built when the file was checked."""
    rows = ", ".join(f"a{index}: {{strategy: random, share: 0.001}}" for index in range(101))
    written = f"{{{rows}}}" if part == "arms" else f"[{', '.join(['flops'] * 101)}]"
    with pytest.raises(UsageError, match=f"{part}.*at most 100 items"):
        searchfile.parse(_with(part, written))


def _with(part: str, written: str) -> str:
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{part}:")]
    return "\n".join([*lines, f"{part}: {written}\n"])


def test_a_control_is_an_arm_with_a_share():
    config = searchfile.parse(GOOD + "\ncontrol: {random: 0.2, parameters: 0.1}\n")
    assert {name: (arm.strategy.name, arm.share) for name, arm in config.arms.items() if "control-" in name} == {
        "control-random": ("random", 0.2),
        "control-parameters": ("parameters", 0.1),
    }


def test_a_file_of_another_kind_in_place_of_a_space_or_a_baseline_is_called_what_it_is(tmp_path):
    (tmp_path / "other.yaml").write_text(GOOD)
    open_store(tmp_path / "runs.db").close()
    file = tmp_path / "search.yaml"

    def said(text):
        file.write_text(text)
        with pytest.raises(UsageError) as error:
            searchfile.load(file)
        return str(error.value)

    written = GOOD[GOOD.index("space:") : GOOD.index("task:")]
    for name, kind in (("other.yaml", "search file"), ("runs.db", "study database")):
        text = GOOD.replace(written, f"space: {name}\n")
        assert f"2: space: {tmp_path}/{name} is a {kind}, but expected" in said(text)
    wrong = said(f"{GOOD}baselines: [other.yaml, runs.db]\n")
    assert f"baselines[0]: {tmp_path}/other.yaml is a search file, not an architecture" in wrong
    assert f"baselines[1]: {tmp_path}/runs.db is a study database, not an architecture" in wrong


def test_a_misspelled_key_comes_before_the_key_that_is_missing():
    with pytest.raises(UsageError) as caught:
        searchfile.parse("task: reversal\nbudgets: {trials: 1}\n", "z.yaml")
    first, second, *_ = str(caught.value).splitlines()
    assert first.startswith("z.yaml:2: budgets: there is no 'budgets' here. Did you mean 'budget'?")
    assert "is missing" in second
