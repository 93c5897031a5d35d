"""Can SmolLM2 repeat the tokens that `uncone.diagnose` names? Three prompts ask it to repeat a token.

    python experiments/real_models/ask.py build/smollm2

The directory is the one that `convert.py` makes. Asked are the tokens that the diagnosis names, in bands of the cosine of the row, less the mean row,
to the common point of untrained rows, the tokens named by direction alone, and 300 random others. A token gets the largest of the probabilities that
the three prompts give it as the next token. `results/asked.csv` has a line per token; tokens that stand there are not asked again.
"""

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
COLUMNS = ("id", "token", "band", "cosine", "special", "list", "quote", "chat")
PROMPTS = {
    "list": " river river\n seven seven\n window window\n{token}",
    "quote": 'Repeat this string: " window" -> " window"\nRepeat this string: "{token}" -> "',
    "chat": "<|im_start|>user\nRepeat this string:{token}<|im_end|>\n<|im_start|>assistant\nThe string is:",
}
BANDS = (("0.96 and more", 0.96), ("0.8 to 0.96", 0.8), ("under 0.8", -1.0))
BY_DIRECTION, OTHER = "by direction alone", "random others"
OTHERS, BATCH, LOW, LOWER = 300, 8, 0.01, 0.001
Line = dict[str, Any]


def band_of(cosine: float, leaning: bool) -> str:
    return BY_DIRECTION if leaning else next(name for name, least in BANDS if cosine >= least)


def chosen(tokens: Iterable[Any], n: int, seed: int = 0) -> list[Line]:
    """The tokens of `UnderTrained.tokens`, and `OTHERS` ids of `n` that are not among them."""
    lines = [
        {"id": one.id, "band": band_of(one.cosine_to_unused, one.leaning), "cosine": round(one.cosine_to_unused, 4)}
        | {"special": one.special}
        for one in tokens
    ]
    left = np.setdiff1d(np.arange(n), [one["id"] for one in lines])
    drawn = np.random.default_rng(seed).choice(left, min(OTHERS, len(left)), replace=False)
    return lines + [{"id": i, "band": OTHER, "cosine": "", "special": ""} for i in sorted(drawn.tolist())]


def summary(lines: list[Line]) -> str:
    """A table: by band, how many tokens no prompt brings to a probability of .01 and of .001."""
    head = ["| band | tokens | median | under .01 | under .001 |", "|---|---|---|---|---|"]
    for band in (*(name for name, _ in BANDS), BY_DIRECTION, OTHER):
        best = np.array([max(float(one[name]) for name in PROMPTS) for one in lines if one["band"] == band])
        if len(best):
            shares = (f"{int((best < bar).sum())} ({(best < bar).mean():.0%})" for bar in (LOW, LOWER))
            head.append(f"| {band} | {len(best)} | {np.median(best):.2g} | {' | '.join(shares)} |")
    return "\n".join(head) + "\n"


def probabilities(model: Any, tokenizer: Any, ids: list[int]) -> list[list[float]]:
    """Of each id the probability that it comes next, by prompt: the id itself stands in the prompt, whatever its text."""
    import torch

    found = []
    for prompt in PROMPTS.values():
        parts = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in prompt.split("{token}")]
        batch = torch.tensor([[*parts[0], i, *parts[1]] for i in ids])
        with torch.no_grad():
            logits = model(batch, logits_to_keep=1).logits[:, -1].double()
        found.append(logits.softmax(-1)[range(len(ids)), ids].tolist())
    return [list(one) for one in zip(*found, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    a = parser.parse_args()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import uncone

    torch.set_num_threads(1)
    head = uncone.diagnose(a.model).subjects[-1]
    if head.under_trained is None or head.under_trained.found is None:
        raise SystemExit("expected untrained rows by the diagnosis of this model, got none: make it by convert.py")
    file = a.out / "asked.csv"
    lines = list(csv.DictReader(file.open(encoding="utf-8"))) if file.exists() else []
    done, asked = {int(one["id"]) for one in lines}, chosen(head.under_trained.tokens, head.n)
    todo, bands = [one for one in asked if one["id"] not in done], {one["id"]: one["band"] for one in asked}
    lines = [one | {"band": bands.get(int(one["id"]), OTHER)} for one in lines]  # as they are named now
    if todo:
        tokenizer = AutoTokenizer.from_pretrained(a.model)
        model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32).eval()
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        for start in range(0, len(todo), BATCH):
            batch = todo[start : start + BATCH]
            for one, p in zip(batch, probabilities(model, tokenizer, [x["id"] for x in batch]), strict=True):
                one["token"] = repr(tokenizer.decode([one["id"]]))
                writer.writerow(one | {name: f"{x:.3g}" for name, x in zip(PROMPTS, p, strict=True)})
            out.flush()
    with file.open(encoding="utf-8") as kept:
        table = summary(list(csv.DictReader(kept)))
    (a.out / "asked.md").write_text(f"# {__doc__}\n{table}", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
