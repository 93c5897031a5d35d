"""Value and gradient of the penalties on tables and states, against the packages that have them and closed forms.

The first matrix is as large as the head of Llama 3.2 1B. Its floor reads the matrix twice and writes it once.
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
from measured import HERE, Row, Work, _circumstances, _ratio, memory_of, peak_extra_mib, seconds

import uncone

Tensor = torch.Tensor
Penalty = Callable[[Tensor], Tensor]
LARGE, PAIRS, STATES, BATCH = (128256, 2048), (20000, 768), (4096, 768), (64, 384)


def points(shape: tuple[int, int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows with a decaying spectrum and a common direction."""
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.linspace(2, 0.3, shape[1])
    return ((torch.randn(shape, generator=generator) + 0.5) * spectrum).to(dtype)


def both(make: Callable[[], Penalty], shape: tuple[int, int], dtype: torch.dtype = torch.float32) -> Callable[[], Work]:
    def prepare() -> Work:
        penalty, x = make(), points(shape, dtype).requires_grad_()

        def work() -> float:
            x.grad = None
            value = penalty(x)
            value.backward()
            return float(value.detach())

        return work

    return prepare


def touched(shape: tuple[int, int]) -> Work:
    x = points(shape)

    def work() -> Tensor:
        x.sum()
        return x.clone()

    return work


def closed_form(x: Tensor) -> Tensor:
    s = torch.nn.functional.normalize(x, dim=1).sum(0)
    return (s @ s - len(x)) / len(x) ** 2


def by_pairs(x: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(x, dim=1)
    return ((unit @ unit.T).sum() - len(x)) / len(x) ** 2


def isoscore_package() -> Penalty:
    from IsoScore.IsoScore import istar

    module, identity = istar(), torch.eye(STATES[1])
    return lambda x: 1 - module.IsoScore_star(x, identity, 0.2, is_eval=False)


def isoscore_autograd(x: Tensor) -> Tensor:
    shrunk = 0.8 * torch.cov(x.T) + 0.2 * torch.eye(x.shape[1])
    return 1 - (shrunk.trace().square() / shrunk.square().sum() - 1) / (x.shape[1] - 1)


def sentence_transformers() -> Penalty:
    from sentence_transformers.sentence_transformer.losses import GlobalOrthogonalRegularizationLoss

    loss = GlobalOrthogonalRegularizationLoss(None)
    return lambda x: sum(loss.compute_gor(x))


def _shape(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"


BF16 = torch.bfloat16
TABLES: dict[str, list[Row]] = {
    f"CosinePenalty, {_shape(LARGE)}": [
        Row("uncone", both(uncone.CosinePenalty, LARGE)),
        Row("floor: the matrix summed and cloned", lambda: touched(LARGE)),
        Row("closed form, autograd", both(lambda: closed_form, LARGE)),
        Row("closed form, autograd, compiled", both(lambda: torch.compile(closed_form), LARGE)),
        Row("uncone, bfloat16", both(uncone.CosinePenalty, LARGE, BF16)),
        Row("closed form, autograd, bfloat16", both(lambda: closed_form, LARGE, BF16)),
    ],
    f"CosinePenalty, {_shape(PAIRS)}": [
        Row("uncone, of pairs", both(uncone.CosinePenalty, PAIRS)),
        Row("V x V cosines, autograd", both(lambda: by_pairs, PAIRS), repeats=3),
    ],
    f"IsoScorePenalty, {_shape(STATES)}": [
        Row("uncone, C0 = I", both(lambda: uncone.IsoScorePenalty(target=torch.eye(STATES[1])), STATES)),
        Row("uncone, C0 = (tr C / D) I", both(uncone.IsoScorePenalty, STATES)),
        Row("traces, autograd", both(lambda: isoscore_autograd, STATES)),
        Row("IsoScore package, I-STAR", both(isoscore_package, STATES)),
    ],
    **{
        f"OrthogonalPenalty, {_shape(shape)}": [
            Row(f"uncone, {shape[0]} states", both(uncone.OrthogonalPenalty, shape)),
            Row(f"Sentence Transformers, {shape[0]} states", both(sentence_transformers, shape)),
        ]
        for shape in (STATES, BATCH)
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory-of", help="measure the memory of one row and print it")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    if chosen.memory_of:
        row = next(row for rows in TABLES.values() for row in rows if row.name == chosen.memory_of)
        print(json.dumps(peak_extra_mib(row.prepare())))
        return
    lines = ["# Value and gradient of the penalties", "", "`python benchmarks/bench_penalties.py`", ""]
    for title, rows in TABLES.items():
        taken = seconds(rows, chosen.repeats)
        lines += [
            f"## {title}",
            "",
            "| row | median s | min to max s (n) | x uncone | extra memory MiB |",
            "|---|---|---|---|---|",
        ]
        for row in rows:
            times, memory = taken[row.name], memory_of(__file__, row)
            spread, ratio = f"{min(times):.4g} to {max(times):.4g} ({len(times)})", _ratio(times, taken[rows[0].name])
            lines += [f"| {row.name} | {statistics.median(times):.4g} | {spread} | {ratio:.3g} | {memory:.0f} |"]
        lines += [""]
    values = {row.name: row.prepare()() for rows in TABLES.values() for row in rows if "floor" not in row.name}
    pairs = (("uncone, of pairs", "V x V cosines, autograd"), ("uncone, C0 = I", "IsoScore package, I-STAR"))
    pairs += tuple((f"uncone, {n} states", f"Sentence Transformers, {n} states") for n in (STATES[0], BATCH[0]))
    lines += [f"{ours} less {theirs}: {values[ours] - values[theirs]:.1e}." for ours, theirs in pairs]
    text = "\n".join([*lines, "", _circumstances()]) + "\n"
    print(text)
    (HERE / "results" / "penalties.md").write_text(text)


if __name__ == "__main__":
    main()
