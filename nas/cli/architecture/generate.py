"""nas generate: text from a trained model."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import MOST_SEED, ArchitectureName, AsJson, Storage, threads_option
from nas.cli.output import note, print_json, say


@app.command()
def generate(
    architecture: ArchitectureName,
    prompt: Annotated[str, typer.Option(help="What the model continues; for an encoder-decoder its source.")],
    weights: Annotated[
        str | None, typer.Option(help="A file of weights. Default: those next to the file, or of the trial.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Symbols to generate at most.")] = 200,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the most likely symbol.")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from the K most likely symbols; 0 is all.")] = 0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Draw from the most likely symbols of mass P.")] = 1.0,
    beams: Annotated[int, typer.Option(min=0, help="Search with this many beams instead of drawing.")] = 0,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the draws.")] = 0,
    whole: Annotated[
        bool, typer.Option("--whole", help="Read the whole text again for each symbol, without kept state.")
    ] = False,
    threads: Annotated[int, threads_option("CPU threads.")] = 1,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Generate text with a trained ARCHITECTURE: an exported file or folder, the folder of a training, or STUDY:TRIAL.

    Example: nas generate best.yaml --prompt "def main(" --temperature 0.8 --top-p 0.95
    """
    import torch

    from nas.errors import UsageError
    from nas.generation import Sampling, beam, sample
    from nas.trained import loading

    drawing = {"--temperature": temperature != 1, "--top-k": top_k, "--top-p": top_p != 1, "--seed": seed}
    if beams and any(drawing.values()):
        given = ", ".join(name for name, differs in drawing.items() if differs)
        raise UsageError(f"--beams searches for the most likely text and draws nothing, so leave out {given}.")
    model, vocabulary, _ = loading.load(architecture, weights, storage)
    if vocabulary is None:
        raise UsageError(f"{architecture} has no vocabulary in its header, so text cannot become symbols.")
    torch.set_num_threads(threads)
    try:
        symbols = torch.tensor([vocabulary.encode(prompt)], dtype=torch.int64)
        sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    except ValueError as error:
        raise UsageError(str(error)) from None
    end = vocabulary.special_symbol("end") if "end" in vocabulary.special else None
    source = None
    if hasattr(model, "encode"):
        source = symbols if end is None else torch.cat([symbols, torch.tensor([[end]])], dim=1)
        symbols = torch.tensor([[vocabulary.special_symbol("start")]])
    if beams:
        found = beam(model, symbols, steps, beams, source=source, end=end, whole=whole)
    else:
        found = sample(model, symbols, steps, sampling, source=source, end=end, seed=seed, whole=whole)
    text = vocabulary.decode(found.symbols)
    if as_json:
        print_json(
            {
                "prompt": prompt,
                "text": text,
                "symbols": found.symbols,
                "prompt_seconds": found.prompt_seconds,
                "tokens_per_second": found.tokens_per_second,
                "score": found.score,
                "cut": found.cut,
            }
        )
        return
    say(text if source is not None else prompt + text)
    if found.cut is not None:
        note(f"The text ends here: {found.cut}")
    note(
        f"{len(found.symbols)} symbols, {found.tokens_per_second:,.0f} tokens/s after a prompt of "
        f"{found.prompt_seconds * 1000:.1f} ms"
    )
