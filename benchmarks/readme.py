"""Writes the tables of speed in README.md (five rows) and benchmarks/README.md (all) from what the benchmarks kept."""

from pathlib import Path

HERE = Path(__file__).parent
PAGES = {HERE / "README.md": False, HERE.parent / "README.md": True}
HEAD = "| work | uncone | rival | ratio | command |\n|---|---|---|---|---|\n"


def kept(name: str) -> list[dict[str, str]]:
    """The rows of results/NAME.md, by heading."""
    lines = (HERE / "results" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def section(name: str, title: str) -> dict[str, dict[str, str]]:
    """The table under the heading `title` of results/NAME.md: by row's name, each by heading."""
    text = (
        (HERE / "results" / f"{name}.md").read_text(encoding="utf-8").split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    )
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[2:]}


def _s(row: dict[str, str]) -> str:
    return f"{row['median s']} s"


def _cost(row: dict[str, str]) -> str:
    memory = row["extra memory MiB"]
    return f"{_s(row)}, {memory} MiB" if memory else _s(row)


def _times(slow: dict[str, str], fast: dict[str, str]) -> str:
    return f"{float(slow['median s']) / float(fast['median s']):.3g}"


def _inverse(ratio: str) -> str:
    return f"{1 / float(ratio):.3g}"


def _partition() -> str:
    _, ours, _, numpy, published = kept("partition")
    ratios = f"{published['x uncone']} and {numpy['x uncone']} x faster; {ours['x floor']} x the floor of its products"
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
    ratios = f"{at_once['x uncone']} and {loop['x uncone']} x faster"
    return f"| mean cosine of all pairs, 50257 x 768 | {_s(ours)}, exact | {rivals} | {ratios} | `bench_cosine.py` |"


def _isoscore() -> str:
    ours, torch, package = kept("isoscore")
    rivals = f"IsoScore package: {_cost(package)}; `torch.cov`: {_cost(torch)}"
    ratio = f"{_inverse(ours['x package'])} x faster"
    return f"| IsoScore from disk, 128256 x 2048 | {_cost(ours)} | {rivals} | {ratio} | `bench_isoscore.py` |"


def _cross_entropy() -> str:
    _, plain, _, told, _, torch, dense, published, *_ = kept("cross_entropy")
    rivals = f"`torch` chunked: {_cost(torch)}; logits and cross-entropy: {_cost(dense)}"
    ratios = (
        f"{_times(torch, plain)} and {_times(dense, plain)} x faster; {plain['x floor']} x the floor of its products"
    )
    work = "loss and gradients of a head, 4096 targets, 50257 x 768"
    dense_gate = f"published gate: {_cost(published)}"
    faster = f"{_times(published, told)} x faster; {_times(told, plain)} x plain"
    return (
        f"| {work} | {_cost(plain)} | {rivals} | {ratios} | `bench_cross_entropy.py` |\n"
        f"| the same, gated, its share told | {_cost(told)} | {dense_gate} | {faster} | `bench_cross_entropy.py` |"
    )


def _penalties() -> str:
    tables = {
        "cosine penalty of a head and its gradient": "CosinePenalty, 128256 x 2048",
        "the same against all pairs of rows": "CosinePenalty, 20000 x 768",
        "IsoScore penalty and its gradient": "IsoScorePenalty, 4096 x 768",
        "orthogonality penalty and its gradient": "OrthogonalPenalty, 4096 x 768",
    }
    lines = list[str]()
    for work, title in tables.items():
        rows = [row for row in section("penalties", title).values() if "bfloat16" not in row["row"]]
        ours, *rivals = (row for row in rows if "tr C" not in row["row"])
        costs = "; ".join(f"{row['row']}: {_cost(row)}" for row in rivals)
        ratios = ", ".join(row["x uncone"] for row in rivals)
        lines.append(
            f"| {work}, {title.split(', ')[1]} | {_cost(ours)} | {costs} | {ratios} x its time | `bench_penalties.py` |"
        )
    return "\n".join(lines)


def _diagnose() -> str:
    minilm, _, large, *_ = kept("diagnose")
    took = f"{_s(large)}, peak {large['peak anonymous MiB']} MiB in all"
    return (
        f"| `uncone diagnose` MiniLM, process start to HTML and JSON | {_s(minilm)} | | | `bench_diagnose.py` |\n"
        f"| `uncone diagnose` {large['input']} | {took} | | | `bench_diagnose.py` |"
    )


def _neighbours() -> str:
    _, _, two_nn, hubness, *_, package = kept("neighbours")
    ratio = f"{package['x two_nn']} x faster; {two_nn['x floor']} x the floor of all products"
    return (
        f"| TwoNN dimension, exact, 50257 x 768 | {_cost(two_nn)} | scikit-dimension: {_cost(package)} | {ratio} | `bench_neighbours.py` |\n"
        f"| hubness, exact, 10 neighbours, the same | {_cost(hubness)} | | {hubness['x floor']} x the floor | `bench_neighbours.py` |"
    )


def _parquet() -> str:
    *_, whole, ours, naive = kept("parquet")
    rivals = f"pyarrow, then the same sums: {_cost(whole)}; table and `np.stack`: {_cost(naive)}"
    ratio = f"{ours['x read, then products']} x reading and products in turn"
    return f"| moments of a Parquet column, 1M x 384 | {_cost(ours)} | {rivals} | {ratio} | `bench_parquet.py` |"


def _word_vectors() -> str:
    ours, _, gensim, *_ = kept("word_vectors")
    ratio = f"{gensim['x ours']} x faster"
    return (
        f"| GloVe text, 400,000 x 300 | {_cost(ours)} | gensim: {_cost(gensim)} | {ratio} | `bench_word_vectors.py` |"
    )


def _repair_fit() -> str:
    rows = {row["row"]: row for row in kept("repair_fit")}
    ours = next(row for name, row in rows.items() if name.startswith("uncone, AllButTheTop"))
    whole = rows["scikit-learn, PCA(21)"]
    by_covariance = rows["scikit-learn, PCA(21) by the covariance"]
    rivals = f"scikit-learn, PCA: {_cost(whole)}; by the covariance: {_cost(by_covariance)}"
    ratios = f"{ours['x PCA']} and {ours['x PCA by the covariance']} x their time"
    work = "fit All-but-the-Top from disk, 128256 x 2048"
    return f"| {work} | {_cost(ours)} | {rivals} | {ratios} | `bench_repair_fit.py` |"


def _repair_apply() -> str:
    _, ours, _, memmap, _, scikit_learn = kept("repair_apply")
    rivals = f"`numpy.memmap` by hand: {_cost(memmap)}; scikit-learn in memory: {_cost(scikit_learn)}"
    ratio = f"{ours['x the parts']} x reading, product and writing in turn"
    return f"| whiten 1M x 384 from disk to disk | {_cost(ours)} | {rivals} | {ratio} | `bench_repair_apply.py` |"


def _barcode() -> str:
    one = section("barcode", "4096 x 768, 1 thread")
    many = section("barcode", "256 groups of 16 x 768, 1 thread")
    lines = list[str]()
    for work, rows in (
        ("H0 barcode and gradient, 4096 x 768, one thread", one),
        ("the same of 256 clouds of 16", many),
    ):
        ours, rival = rows["uncone"], rows["torch-topological"]
        ratio = f"{_inverse(ours['x torch-topological'])} x faster" + (
            f"; {ours['x floor']} x the floor of its product" if "x floor" in ours else ""
        )
        rivals = f"torch-topological: {_ms(rival)}"
        lines.append(f"| {work} | {_ms(ours)} | {rivals} | {ratio} | `bench_barcode.py` |")
    return "\n".join(lines)


def _ms(row: dict[str, str]) -> str:
    return f"{float(row['median ms']) / 1000:.3g} s"


def _barcode_large() -> str:
    lines = list[str]()
    for n, threads in (("16384", "1"), ("100000", "2")):
        rows = {row["row"]: row for row in kept("barcode_large") if row["n"] == n and row["threads"] == threads}
        ours = rows["uncone"]
        giotto = rows.get("giotto-ph")
        rivals = f"giotto-ph, forward: {_cost(giotto)}" if giotto else ""
        ratio = f"{ours['x floor (n)'].split(' ')[0]} x the floor of its product"
        work = f"spanning tree of {int(n):,} x 768, {'one thread' if threads == '1' else 'two threads'}"
        lines.append(f"| {work} | {_cost(ours)} | {rivals} | {ratio} | `bench_barcode_large.py` |")
    return "\n".join(lines)


def _saturation() -> str:
    whole, every, few, arpack = kept("saturation_context")
    *_, ours, svd = kept("saturation_checkpoints")
    law, _, scipy, *_ = kept("saturation_law")
    judged = kept("saturation_curves")[0]
    floor, _, ranks = kept("saturation_rank")
    seconds = float(scipy["s"]) / float(law["s"])
    lines = [
        (
            "500 singular values of the contexts of 2M tokens",
            _cost(whole),
            f"100 values: {_cost(few)}; scipy's ARPACK: {_cost(arpack)}",
            f"{_times(arpack, few)} x faster",
            "context",
        ),
        ("all nine such matrices of `context_rank`", _cost(every), "", "", "context"),
        (
            "all numbers of a head at a checkpoint, 50304 x 768",
            _cost(ours),
            f"`numpy.linalg.svd` twice: {_cost(svd)}",
            f"{_times(svd, ours)} x faster",
            "checkpoints",
        ),
        (
            "4,500 starts of a scaling law, 245 runs",
            f"{law['s']} s",
            f"SciPy's L-BFGS-B, one by one: {scipy['s']} s",
            f"{seconds:.3g} x faster",
            "law",
        ),
        (
            "curves judged a minute, 16 checkpoints",
            judged["curves a minute"],
            f"counted draws: {judged['counted draws, curves a minute']}",
            "",
            "curves",
        ),
        (
            "loss against rank, 8 ranks, 16384 x 256, 200,000 states",
            _s(ranks),
            "",
            f"{_times(ranks, floor)} x one product of all states",
            "rank",
        ),
    ]
    return "\n".join(f"| {' | '.join(cells)} | `bench_saturation_{name}.py` |" for *cells, name in lines)


def _explained() -> str:
    counted, _, _, batch, fast, *_ = kept("count")
    forward, _, layers, stored, *_ = kept("layers")
    dense, own, _, ledger, _, read = kept("gradients")
    beside = ledger["x uncone's loss"]
    direction, _, ours, programme = kept("cone")
    heads, few, *_ = kept("unreachable")
    monitor = (float(read["x step"]) - 1) / 50
    lines = [
        (
            "tokens of 205 MB counted, WordPiece",
            _s(counted),
            f"`encode_batch`, not counted: {_s(batch)}; `encode_batch_fast`: {_s(fast)}",
            f"{counted['x encode_batch']} and {counted['x encode_batch_fast']} x their time",
            "count",
        ),
        (
            "states of all layers of MiniLM, 100,000 tokens",
            _cost(layers),
            f"forward pass alone: {_s(forward)}; all states stored: {_s(stored)}",
            f"{layers['x forward']} x the forward pass",
            "layers",
        ),
        (
            "ledger of a head's gradient, 8192 targets, 30000 x 384",
            _cost(ledger),
            f"forward and backward: {_cost(dense)}, chunked {_cost(own)}",
            f"{ledger['x logits']} and {beside} x their time; monitor {monitor:.1%} of a step",
            "gradients",
        ),
        ("a direction that 20,000 x 256 states avoid, proven", _cost(direction), "", "", "cone"),
        (
            "the same, 4,000 x 64",
            _cost(ours),
            f"HiGHS: {_cost(programme)}",
            f"{_times(programme, ours)} x faster",
            "cone",
        ),
        (
            "every token of a head of 4096 x 64 proven reachable",
            _cost(heads),
            f"HiGHS, 4 tokens of them: {_s(few)}",
            f"{1024 * float(few['median s']) / float(heads['median s']):,.0f} x faster a token",
            "unreachable",
        ),
    ]
    return "\n".join(f"| {' | '.join(cells)} | `bench_{name}.py` |" for *cells, name in lines)


def _gpu() -> str:
    heads = {row["row"]: row for row in kept("cross_entropy_gpu_nvidia_h100_80gb_hbm3")}
    plain, gated, liger = heads["triton, plain"], heads["triton, gated"], heads["Liger, its defaults"]
    rivals = (
        f"Liger: {_ms(liger)}, {liger['extra memory MiB']} MiB; logits and cross-entropy: "
        f"{_ms(heads['logits + cross_entropy'])}, {heads['logits + cross_entropy']['extra memory MiB']} MiB; the backend "
        f"`chunk`: {_ms(heads['chunk, plain'])}"
    )
    lines = [
        (
            "the same on an H100, 16384 targets, 128256 x 4096, bfloat16, `triton`",
            f"{_ms(plain)}, {plain['extra memory MiB']} MiB; gated {_ms(gated)}",
            rivals,
            f"{_inverse(plain['x Liger'])} x faster than Liger; {plain['x floor']} x the floor of its products",
            "cross_entropy",
        )
    ]
    for work, title in (
        ("H0 barcode and gradient, 4096 x 768", "4096 x 768"),
        ("of 256 clouds of 16", "256 x 16 x 768"),
    ):
        rows = section("barcode_gpu", title)
        eager, replayed = (rows[f"barcode, forward and backward{how}"] for how in ("", ", graph replay"))
        rival = rows["torch-topological, forward and backward"]
        cost, ratios = (
            f"{_ms(eager)}; as a CUDA graph {_ms(replayed)}",
            f"{_ratio(rival, eager)} and {_ratio(rival, replayed)} x faster",
        )
        lines.append(
            (
                f"{work}, on an H100",
                cost,
                f"torch-topological, whose bars are made on the CPU: {_ms(rival)}",
                ratios,
                "barcode",
            )
        )
    return "\n".join(f"| {' | '.join(cells)} | `bench_{name}_gpu.py` |" for *cells, name in lines)


def _ratio(slow: dict[str, str], fast: dict[str, str]) -> str:
    return f"{float(slow['median ms']) / float(fast['median ms']):.3g}"


def _table_adam() -> str:
    adamw, _, _, fused, _, column, _, _, centred, published = kept("table_adam")
    rivals = f"`torch` AdamW: {_cost(adamw)}; `fused=True`: {_cost(fused)}"
    step = f"| a step of `TableAdam`, one second moment a column, 50257 x 768 | {_cost(column)} | {rivals}"
    ratios = f"{_inverse(column['x default'])} and {_inverse(column['x fused'])} x faster"
    lines = [f"{step} | {ratios} | `bench_table_adam.py` |"]
    rival = f"mean, difference and copy: {_cost(published)}"
    times = f"{_times(published, centred)} x faster"
    lines.append(
        f"| the mean row of 50257 x 768 taken away | {_cost(centred)} | {rival} | {times} | `bench_table_adam.py` |"
    )
    return "\n".join(lines)


LINES = (
    _partition,
    _moments,
    _cosine,
    _isoscore,
    _neighbours,
    _parquet,
    _word_vectors,
    _repair_fit,
    _repair_apply,
    _barcode,
    _barcode_large,
    _cross_entropy,
    _gpu,
    _penalties,
    _table_adam,
    _saturation,
    _explained,
    _diagnose,
)


FEW = ("128256 x 2048", "TwoNN", "H0 barcode", "loss and gradients", "262144 x 2048")
"""Words of the five rows that the first page shows."""


def table(*, few: bool = False) -> str:
    """The table in Markdown: all rows, or the few of the first page."""
    rows = "\n".join(line() for line in LINES).split("\n")
    if few:
        rows = [next(row for row in rows if words in row and "PCA" not in row) for words in FEW]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    for page, few in PAGES.items():
        text = page.read_text(encoding="utf-8")
        start = text.index(HEAD)
        rest = text[text.index("\n\n", start) + 1 :]
        page.write_text(text[:start] + table(few=few) + rest, encoding="utf-8")
