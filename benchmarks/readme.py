"""Writes the README's table of speed from the tables that the benchmarks kept: `python benchmarks/readme.py`."""

from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
HEAD = "| work | uncone | rival | ratio | command |\n|---|---|---|---|---|\n"


def kept(name: str) -> list[dict[str, str]]:
    """The rows of results/NAME.md, by heading."""
    lines = (HERE / "results" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def _s(row: dict[str, str]) -> str:
    return f"{row['median s']} s"


def _cost(row: dict[str, str]) -> str:
    return f"{_s(row)}, {row['extra memory MiB']} MiB"


def _times(slow: dict[str, str], fast: dict[str, str]) -> str:
    return f"{float(slow['median s']) / float(fast['median s']):.3g}"


def _partition() -> str:
    _, ours, _, numpy, published = kept("partition")
    ratios = f"{_times(published, ours)} and {_times(numpy, ours)} x faster; {ours['x floor']} x the floor of its products"
    rivals = f"published way: {_s(published)}; one product with NumPy: {_cost(numpy)}"
    return f"| I(W), both signs, 50257 x 768 | {_cost(ours)} | {rivals} | {ratios} | `bench_partition.py` |"


def _moments() -> str:
    numpy, torch, ours, *_ = kept("moments")
    rivals = f"`X.T @ X` and `eigh` alone: {_s(numpy)} (NumPy), {_s(torch)} (torch)"
    ratios = f"{ours['x numpy']} and {ours['x torch']} x their time"
    measures = ours["row"].removeprefix("uncone, ")
    return f"| {measures}, 50257 x 768 | {_cost(ours)} | {rivals} | {ratios} | `bench_moments.py` |"


def _cosine() -> str:
    ours, at_once, loop = kept("cosine")
    rivals = f"100,000 sampled pairs: {_s(at_once)} at once, {_s(loop)} in a loop"
    ratios = f"{_times(at_once, ours)} and {_times(loop, ours)} x faster"
    return f"| mean cosine of all pairs, 50257 x 768 | {_s(ours)}, exact | {rivals} | {ratios} | `bench_cosine.py` |"


def _isoscore() -> str:
    ours, torch, package = kept("isoscore")
    rivals = f"IsoScore package: {_cost(package)}; `torch.cov`: {_cost(torch)}"
    ratio = f"{_times(package, ours)} x faster"
    return f"| IsoScore from disk, 128256 x 2048 | {_cost(ours)} | {rivals} | {ratio} | `bench_isoscore.py` |"


def _cross_entropy() -> str:
    _, plain, _, told, _, torch, dense, published, *_ = kept("cross_entropy")
    rivals = f"`torch` chunked: {_cost(torch)}; logits and cross-entropy: {_cost(dense)}"
    ratios = f"{_times(torch, plain)} and {_times(dense, plain)} x faster; {plain['x floor']} x the floor of its products"
    work = "loss and gradients of a head, 4096 targets, 50257 x 768"
    dense_gate = f"published gate: {_cost(published)}"
    faster = f"{_times(published, told)} x faster; {_times(told, plain)} x plain"
    return (
        f"| {work} | {_cost(plain)} | {rivals} | {ratios} | `bench_cross_entropy.py` |\n"
        f"| the same, gated, its share told | {_cost(told)} | {dense_gate} | {faster} | `bench_cross_entropy.py` |"
    )


def _diagnose() -> str:
    minilm, _, large, _ = kept("diagnose")
    took = f"{_s(large)}, peak {large['peak anonymous MiB']} MiB in all"
    return (
        f"| `uncone diagnose` MiniLM, process start to HTML and JSON | {_s(minilm)} | | | `bench_diagnose.py` |\n"
        f"| `uncone diagnose` {large['input']} | {took} | | | `bench_diagnose.py` |"
    )


def table() -> str:
    """The table, in Markdown."""
    return HEAD + "\n".join(line() for line in (_partition, _moments, _cosine, _isoscore, _cross_entropy, _diagnose)) + "\n"


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    start = text.index(HEAD)
    README.write_text(text[:start] + table() + text[text.index("\n\n", start) + 1 :], encoding="utf-8")
