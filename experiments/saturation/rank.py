"""What the rank of the head costs: stories260K, the model of examples/train_with_gate.py, and the paper's own curves.

    python experiments/saturation/rank.py stories
    python experiments/saturation/rank.py misfit
    python experiments/saturation/rank.py gpt2
    python experiments/saturation/rank.py figures
    python experiments/saturation/rank.py tables

Each of the first four writes results/rank_NAME.json, and the last results/rank.md from these; `misfit` is stories260K on a text that it does not
know. The data lies in ../shared/data.
"""

import argparse
import csv
import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uncone.model.last_states import States, states_of
from uncone.records.rebuild import build_record
from uncone.saturation.head.rank.answers import kink
from uncone.saturation.head.rank.mixture import compare
from uncone.saturation.head.rank.rank_curve import _read, rank_curve
from uncone.saturation.head.rank.record import NAMES, RankCurve

ROOT = Path(__file__).parents[2]
DATA, RESULTS = ROOT / "../shared/data", Path(__file__).parent / "results"
RANKS = dict.fromkeys(("stories", "misfit", "gpt2"), (2, 4, 8, 16, 24, 32, 48))
TOKENS, REMEDY_STEPS = 60_000, {"stories": 300, "gpt2": 60}
ERRORS = (0.0005, 0.002)
"""Nats: how far a digitised loss may be off."""


def stories() -> States:
    """stories260K on stories of its own: 256 of 255 tokens, drawn at temperature 1."""
    import transformers

    sys.path.insert(0, str(ROOT / "experiments/stories260k"))
    from convert import convert

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "stories260K"
        convert(DATA / "models/stories260K", place)
        model = transformers.AutoModelForCausalLM.from_pretrained(place, local_files_only=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True)
        torch.manual_seed(0)
        texts: list[str] = []
        for _ in range(4):
            ids = model.generate(
                torch.full((64, 1), 1), do_sample=True, top_k=0, max_new_tokens=255, pad_token_id=0, eos_token_id=None
            )
            texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
        return states_of(place, texts)


def misfit() -> States:
    """stories260K on WikiText-2, of which it knows less than its token frequencies."""
    import bottleneck

    model, texts = bottleneck.SUBJECTS["stories260K, WikiText-2"](bottleneck.ROOT / "build")
    return states_of(model, texts, most=bottleneck.TOKENS)


def gpt2() -> States:
    """The example's GPT-2 (8,192 ids, 64 columns) trained without a gate for 500 steps, on WikiText-2's test text."""
    sys.path.insert(0, str(ROOT / "examples"))
    import train_with_gate as example

    args = example.parse(["--data", str(DATA / "lm/wikitext-2")])
    text = example.read_text(args.data, args.vocab)
    run = example.Run("plain", None, example.make_model(text.vocab_size, args))
    example.train(run, example.make_batches(text, args), args)
    states, labels = list[torch.Tensor](), list[torch.Tensor]()
    with torch.no_grad():
        run.model.eval()
        for ids in torch.split(text.windows("test")[: TOKENS // (example.LENGTH - 1)], 32):
            hidden = run.model.transformer(input_ids=ids).last_hidden_state
            states.append(hidden[:, :-1].flatten(0, 1))
            labels.append(ids[:, 1:].flatten())
    head = run.model.get_output_embeddings().weight.detach().clone()
    tokens = torch.cat(labels)
    windows = torch.arange(len(tokens)) // (example.LENGTH - 1)
    return States(torch.cat(states), tokens, head, None, None, 1.0, "gpt2 of train_with_gate", windows)


def figures() -> dict[str, Any]:
    """The kink looked for in figure 6b of Godey et al. 2024, with two sizes of digitising error."""
    curves: dict[str, dict[int, float]] = {}
    for row in csv.DictReader((DATA / "pythia/godey2024_digitised.csv").read_text().splitlines()):
        if row["figure"] == "fig6b_val_loss":
            curves.setdefault(row["model"], {})[int(float(row["x"]))] = float(row["y"])
    found = dict[str, Any]()
    for model, curve in sorted(curves.items()):
        *ranks, full = sorted(curve)
        losses = np.array([curve[rank] for rank in (*ranks, full)])
        for error in ERRORS:
            drawn = losses + np.random.default_rng(0).normal(0, error, (2000, len(losses)))
            one = kink(tuple(ranks), full, losses[:-1] - losses[-1], drawn[:, :-1] - drawn[:, -1:])
            within = {
                str(m): next(r for r in (*ranks, full) if curve[r] <= losses[-1] * (1 + m)) for m in (0.01, 0.02, 0.05)
            }
            cell = {"model": model, "full": full, "error": error, "within": within, **dataclasses.asdict(one)}
            found[f"{model} {error}"] = cell
    return found


def tables() -> str:
    """The results as Markdown."""
    lines = list[str]()
    for name in RANKS:
        file = RESULTS / f"rank_{name}.json"
        if file.is_file():
            lines += _curve_table(name, build_record(RankCurve, json.loads(file.read_text()), "curve"))
    file = RESULTS / "rank_figures.json"
    if file.is_file():
        lines += ["## Figure 6b of Godey et al. 2024, digitised", ""]
        lines += [
            "| model | digitising error | kink | best break | turn | residual: break | smooth | rank within 1%, 2%, 5% |"
        ]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for one in json.loads(file.read_text()).values():
            at = f"{one['rank']:.0f} ({one['low']:.0f} to {one['high']:.0f})"
            cells = [one["model"], one["error"], "yes" if one["found"] else "no", at, f"{one['turn']:+.2f}"]
            cells += [f"{one['broken']:.3f}", f"{one['smooth']:.3f}", ", ".join(map(str, one["within"].values()))]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, ""])


def _curve_table(name: str, curve: RankCurve) -> list[str]:
    heads = [NAMES[line.method] for line in curve.lines]
    lines = [f"## {name}: V {curve.v}, D {curve.d}, {curve.tokens} tokens", "", curve.verdict, ""]
    lines += [f"Full head {curve.full_loss:.4f} ± {curve.full_error:.4f}, margin {curve.margin_nats:.4f} nats.", ""]
    lines += ["| rank | " + " | ".join(heads) + " | bound (data-aware) | spectral |", "|---" * (len(heads) + 3) + "|"]
    bounds = curve.lines[1].bounds
    for i, rank in enumerate(curve.ranks):
        cells = [f"{line.losses[i]:.3f} ({line.excess[i]:+.3f} ± {line.errors[i]:.3f})" for line in curve.lines]
        lines.append(f"| {rank} | " + " | ".join(cells) + f" | {bounds[i].on_states:.3g} | {bounds[i].spectral:.3g} |")
    lines += [""]
    for line in curve.lines:
        one = line.smallest
        lines.append(f"- {NAMES[line.method]}: smallest rank {one.rank} ({one.low} to {one.high}). {line.kink.reason}")
    if curve.remedy is not None:
        one = curve.remedy
        told = f"{one.difference:+.4f} nats ({one.low:+.4f} to {one.high:+.4f})"
        lines.append(f"- mixture of {one.experts} softmaxes against one of {one.width} columns: {told}")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=(*RANKS, "figures", "tables"))
    what = parser.parse_args().what
    RESULTS.mkdir(exist_ok=True)
    if what == "tables":
        (RESULTS / "rank.md").write_text(tables())
        return
    file = RESULTS / f"rank_{what}.json"
    if what == "figures":
        keep(file, figures())
        return
    states = {"stories": stories, "misfit": misfit, "gpt2": gpt2}[what]()
    curve = rank_curve(states, ranks=RANKS[what], progress=lambda *told: print(*told, flush=True))
    keep(file, dataclasses.asdict(curve))
    if what not in REMEDY_STEPS:
        return
    read = _read(states)
    remedy = compare(read.text, read.head, read.fit, read.blocks, steps=REMEDY_STEPS[what])
    keep(file, dataclasses.asdict(dataclasses.replace(curve, remedy=remedy)))


def keep(file: Path, found: dict[str, Any]) -> None:
    file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
