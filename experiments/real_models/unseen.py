"""Are tokens that never occurred in training found, and others left alone? Small language models with 172 unseen ids.

    python experiments/real_models/unseen.py TEXT.txt.xz --out experiments/real_models/unseen

A GPT-2 of 64 columns, two layers and a tied table is trained on a byte-pair vocabulary of the text; 172 more ids stand at random places and never
occur. For each of ten seeds: the unseen tokens found and the others found, with training counts, and with twelve of the unseen known by name alone;
and, with counts, what direction and place find alone, and the cosine alone, against a normal null, as uncone did before. A finished seed is a file of
its own, and is not made again.
"""

import argparse
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from uncone import Moments
from uncone.errors import UndefinedMeasure
from uncone.measure import benjamini_hochberg, robust_null, under_trained_tokens
from uncone.measure.projections import project_about
from uncone.measure.under_trained import known_unused, untrained_axes
from uncone.measure.untrained_evidence import evidence_of, p_of
from uncone.rows import Array, ArrayRows

COLUMNS, UNSEEN, NAMED, FEWEST_TIMES, RATE = 64, 172, 12, 8, 0.01


def train(text: str, seed: int, *, pieces: int = 4096, steps: int = 500) -> tuple[Array, Array, float]:
    """The table (N, 64), how often each id was trained on (N,), and the last loss in nats."""
    ids = encode(text, pieces)
    v, random = int(ids.max()) + 1 + UNSEEN, np.random.default_rng(seed)
    return fit(random.permutation(v)[ids], v, seed, steps)


def encode(text: str, pieces: int = 4096) -> Array:
    """The text as ids from 0 up, each of which occurs at least eight times."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(text.split("\n"), trainers.BpeTrainer(vocab_size=pieces, show_progress=False))
    ids = np.array(tokenizer.encode(text).ids)
    often = np.flatnonzero(np.bincount(ids) >= FEWEST_TIMES)
    return np.searchsorted(often, ids[np.isin(ids, often)])


def fit(ids: Array, v: int, seed: int, steps: int = 500, no_targets: Array | None = None) -> tuple[Array, Array, float]:
    """A GPT-2 trained on these ids of `v`; the loss leaves out `no_targets` as targets."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    stream, seen = torch.from_numpy(ids), torch.zeros(v, dtype=torch.long)
    torch.manual_seed(seed)
    size: dict[str, Any] = {"n_embd": COLUMNS, "n_layer": 2, "n_head": 4, "n_positions": 64}
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    model, loss = GPT2LMHeadModel(GPT2Config(vocab_size=v, **size, **quiet)), torch.zeros(())
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=(0.01, 0.1)[seed % 2])
    masked = torch.from_numpy(np.array([], np.int64) if no_targets is None else no_targets)
    for _ in range(steps):
        starts = torch.randint(0, len(stream) - 64, (16,)).tolist()
        batch = torch.stack([stream[start : start + 64] for start in starts])
        seen += torch.bincount(batch.flatten(), minlength=v)
        loss = model(batch, labels=batch.masked_fill(torch.isin(batch, masked), -100)).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.transformer.wte.weight.detach().numpy(), seen.numpy(), loss.item()


def judge(table: Array, seen: Array, seed: int) -> dict[str, Any]:
    unseen = np.flatnonzero(seen == 0)
    named = set(np.random.default_rng(seed).choice(unseen, NAMED, replace=False).tolist())
    rows = ArrayRows(table, name="table")
    rows.load_labels = lambda: [f"[unused{i}]" if i in named else f"token{i}" for i in range(len(seen))]
    by_count = found_in(table, counts=seen)
    by_name = found_in(rows)
    return {
        "rows": len(seen),
        "unseen": len(unseen),
        "with counts": told(by_count, set(unseen.tolist()), seen),
        "with twelve names": told(by_name, set(unseen.tolist()) - named, seen),
        "place alone": told(place_alone(table, seen), set(unseen.tolist()), seen),
        "cosine alone": told(cosine_alone(table, unseen), set(unseen.tolist()), seen),
    }


def found_in(rows: Any, **options: Any) -> set[int]:
    try:
        tokens = under_trained_tokens(
            rows, most=len(rows) if hasattr(rows, "__len__") else rows.shape[0], **options
        ).tokens
    except UndefinedMeasure:
        return set()
    return {one.id for one in tokens if not (one.expected or one.leaning)}


def place_alone(table: Array, seen: Array) -> set[int]:
    """Direction and place, not joined with other evidence."""
    rows, m = ArrayRows(table, name="table"), Moments.of(table)
    axes = untrained_axes(rows, m, known_unused(None, m.n), seen)
    products, squares = project_about(rows, axes.axes, axes.axes[:, 0])
    evidence = evidence_of(axes, np.linalg.norm(table.astype(np.float64), axis=1), products, squares)
    return set(np.flatnonzero(benjamini_hochberg(p_of("place", axes, evidence)) <= RATE).tolist())


def cosine_alone(table: Array, unseen: Array) -> set[int]:
    """The cosine to the mean of the unseen rows, tested as it is."""
    y = table.astype(np.float64) - table.mean(0, dtype=np.float64)
    point = y[unseen].mean(0)
    cosines = y @ point / np.linalg.norm(y, axis=1) / np.linalg.norm(point)
    return set(np.flatnonzero(benjamini_hochberg(robust_null(cosines).upper_p(cosines)) <= RATE).tolist())


def told(found: set[int], true: set[int], seen: Array) -> dict[str, Any]:
    false = sorted(int(seen[i]) for i in found - true if seen[i] > 0)
    return {"of": len(true), "found": len(found & true), "false": len(false), "their counts": false}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    text = lzma.decompress(arguments.text.read_bytes()).decode()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.seeds):
        file = arguments.out / f"seed{seed}.json"
        if not file.exists():
            table, seen, loss = train(text, seed)
            file.write_text(json.dumps({"loss": round(loss, 3), **judge(table, seen, seed)}, indent=1) + "\n")
            print(f"seed {seed}: {file}")
    ways = ("with counts", "with twelve names", "place alone", "cosine alone")
    lines = [
        f"| seed | rows | loss | {' | '.join(f'{way}: found | false' for way in ways)} |",
        f"|{'---|' * (3 + 2 * len(ways))}",
    ]
    for seed in range(arguments.seeds):
        one = json.loads((arguments.out / f"seed{seed}.json").read_text())
        cells = (f"{one[way]['found']} of {one[way]['of']} | {one[way]['false']}" for way in ways)
        lines.append(f"| {seed} | {one['rows']} | {one['loss']} | {' | '.join(cells)} |")
    (arguments.out / "README.md").write_text(
        f"# Tokens that never occurred in training, ten small models\n\n{__doc__}\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
