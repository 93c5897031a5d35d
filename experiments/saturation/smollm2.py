"""What of the claims holds for SmolLM2-135M-Instruct, a model of 576 columns and 49,152 ids that read 2 T tokens.

    python experiments/real_models/convert.py build/smollm2      # makes the directory
    python experiments/saturation/smollm2.py build/smollm2 [PART ...]

Each part is a cell of results/smollm2.json, made once; results/smollm2.md is written from it. The text is Wikipedia's validation shard: the first
1,200 characters of each article, until there are 20,000 tokens. States are kept in build/, as a forward pass takes a minute.
"""

import argparse
import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from bottleneck import DATA, RESULTS, ROOT, record_of

from uncone.model.last_states import States, open_causal, states_of
from uncone.saturation.head.excision.excision import excise
from uncone.saturation.head.gradient.gradient_share import kept_gradient_share
from uncone.saturation.head.rank.rank_curve import rank_curve
from uncone.saturation.head.rank.record import NAMES

TOKENS, CHARACTERS, IDS = 20_000, 1200, 4096
EXCISED, KS = 4000, (1, 2, 4, 8, 16, 32, 64)
"""Tokens and numbers of directions: each is a product with the whole head."""
PLACES = 6000
KEPT = ROOT / "build/smollm2_states.pt"
Cell = dict[str, Any]


def texts() -> list[str]:
    whole = lzma.decompress((DATA / "lm/wiki-en-2018/valid.txt.xz").read_bytes()).decode()
    return [f"= {article}"[:CHARACTERS] for article in whole.removeprefix("= ").split("\n\n= ")]


def states(model: Path) -> States:
    if not KEPT.exists():
        KEPT.parent.mkdir(exist_ok=True)
        torch.save(vars(states_of(model, texts(), most=TOKENS)), KEPT)
    return States(**torch.load(KEPT))


def frequent(given: States, ids: int = IDS) -> States:
    """The head's rows of the most frequent labels, and the tokens that are one of them: a smaller vocabulary in earnest, as the
    probabilities of the other ids are shared out among these."""
    counts = torch.bincount(given.labels, minlength=len(given.head))
    kept = torch.sort(counts, descending=True, stable=True)[1][:ids].sort()[0]
    place = torch.full((len(counts),), -1)
    place[kept] = torch.arange(len(kept))
    here = place[given.labels] >= 0
    bias = None if given.bias is None else given.bias[kept]
    labels, windows = place[given.labels[here]], given.windows[here]
    of = {"states": given.states[here], "labels": labels, "windows": windows, "head": given.head[kept], "bias": bias}
    return replace(given, **of, inputs=None, texts=None)


def directions(model: Path) -> Cell:
    """Of the states of each layer, without the first place of each text, where giant states lie."""
    from uncone.diagnosis.why.direction.negative_direction import uniformly_negative_direction

    opened, layers, windows, left = open_causal(model), list[list[torch.Tensor]](), list[int](), PLACES
    for number, text in enumerate(texts()):
        ids = torch.tensor([opened.tokenizer.encode(text).ids[: left + 1]])
        with torch.no_grad():
            hidden = opened.model(ids, output_hidden_states=True).hidden_states
        layers.append([one[0, 1:] for one in hidden])
        windows += [number] * (ids.shape[1] - 1)
        left -= ids.shape[1] - 1
        if left <= 0:
            break
    found = dict[str, Any]()
    for place, parts in enumerate(zip(*layers, strict=True)):
        name = "embeddings" if place == 0 else "final norm" if place == len(layers[0]) - 1 else f"layer {place}"
        one = uniformly_negative_direction(torch.cat(parts).numpy(), windows=torch.tensor(windows).numpy())
        signs = next(cloud for cloud in one.clouds if cloud.name == "random signs")
        found[name] = {"exists": one.exists, "searched": one.n, "margin": one.margin, "held_out": one.held_out}
        found[name] |= {"violations": one.violations, "cosine_to_mean": one.cosine_to_mean, "verdict": one.verdict}
        found[name] |= {"mean_violations": one.mean_violations, "random_signs": signs.exists}
        print(name, found[name], flush=True)
    return found


def told(*step: object) -> None:
    print(*step, flush=True)


PARTS: dict[str, Callable[[Path], Cell]] = {
    "gradient": lambda model: record_of(kept_gradient_share(states(model))),
    "truncations": lambda model: record_of(rank_curve(states(model), refits=False, progress=told)),
    "excision": lambda model: record_of(excise(states(model).some(EXCISED), ks=KS, progress=told)),
    "refits": lambda model: record_of(rank_curve(frequent(states(model)), progress=told)),
    "directions": directions,
}


def table(results: dict[str, Cell]) -> str:
    lines = ["# SmolLM2-135M-Instruct on Wikipedia", ""]
    for part in ("truncations", "refits"):
        if part in results:
            lines += _curve(f"Rank of the head: {part}", results[part])
    for part in ("gradient", "excision"):
        if part in results:
            lines += [f"## {part.capitalize()}", "", results[part]["verdict"], ""]
    if "excision" in results:
        lines += ["| directions | k | energy | change of loss (95%) |", "|---" * 4 + "|"]
        for row in results["excision"]["rows"]:
            low, high = row["change"]["interval"]
            ends = f"{row['change']['value']:+.4f} ({low:+.4f} to {high:+.4f})"
            lines.append(f"| {row['directions']} | {row['k']} | {row['energy']:.1%} | {ends} |")
        lines.append("")
    if "directions" in results:
        lines += ["## A direction that all states avoid, by layer", ""]
        lines += [
            "| states | exists | margin (mean norms) | held-out ones that violate it | cosine to minus the mean | with random signs |"
        ]
        lines += ["|---" * 6 + "|"]
        said = {True: "yes", False: "no", None: "undecided"}
        for name, one in results["directions"].items():
            margin, cosine = ("-" if one[of] is None else f"{one[of]:.3f}" for of in ("margin", "cosine_to_mean"))
            held = f"{one['violations']} of {one['held_out']:,}"
            lines.append(
                f"| {name} | {said[one['exists']]} | {margin} | {held} | {cosine} | {said[one['random_signs']]} |"
            )
    return "\n".join([*lines, ""])


def _curve(title: str, curve: Cell) -> list[str]:
    heads = [NAMES[line["method"]] for line in curve["lines"]]
    lines = [f"## {title}", "", curve["verdict"], ""]
    lines += [
        f"V {curve['v']:,}, D {curve['d']}, {curve['tokens']:,} tokens, {curve['held_out']:,} held out; margin {curve['margin_nats']:.4f} nats.",
        "",
    ]
    lines += ["| rank | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    for i, rank in enumerate(curve["ranks"]):
        cells = [
            f"{line['losses'][i]:.3f} ({line['excess'][i]:+.3f} ± {line['errors'][i]:.3f})" for line in curve["lines"]
        ]
        lines.append(f"| {rank} | " + " | ".join(cells) + " |")
    lines.append("")
    for line in curve["lines"]:
        one = line["smallest"]
        lines.append(
            f"- {NAMES[line['method']]}: smallest rank {one['rank']} ({one['low']} to {one['high']}). {line['kink']['reason']}"
        )
    return [*lines, *(f"- {note}" for note in curve["notes"]), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    given = parser.parse_args()
    target = RESULTS / "smollm2.json"
    results = json.loads(target.read_text()) if target.exists() else {}
    for part in given.parts or PARTS:
        if part not in results:
            results[part] = PARTS[part](given.model)
            target.write_text(json.dumps(results, indent=1) + "\n")
            print(part, results[part].get("verdict", ""), flush=True)
    (RESULTS / "smollm2.md").write_text(table(results))


if __name__ == "__main__":
    main()
