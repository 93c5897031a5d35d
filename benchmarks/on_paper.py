"""What 10^12 vectors on 100 nodes would take, from the rate that bench_shards.py measured: python benchmarks/on_paper.py"""

import json
import re
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
N, D, NODES = 10**12, 768, 100
CORES, NETWORK = 32, 12.5e9 / 8  # of a node; bytes a second of a link of 12.5 Gbit/s
ROWS_A_SHARD = 10**7
PASSES = {"moments": (1, 1.0), "a diagnosis": (3, 3.0)}
"""How often the rows are read, and products of D x D a row beside those of one `Moments`: unit rows too, and the partition function."""


def main() -> None:
    lines = "\n".join(json.loads((RESULTS / "shards.json").read_text())["speed"])
    rows = int(re.match(r"([\d,]+) x", lines)[1].replace(",", ""))  # type: ignore[index]
    seconds = float(re.search(r"\| uncone, 1 process \| ([\d.]+) \|", lines)[1])  # type: ignore[index]
    rate, size, state = rows / seconds, N * D * 4, D * D * 8
    told = [
        f"# {N:.0e} vectors of {D} columns on {NODES} nodes, on paper",
        "",
        "`python benchmarks/on_paper.py`. Nothing of this size was run.",
        "",
        f"Assumed: nodes of {CORES} cores and {NETWORK * 8 / 1e9:g} Gbit/s, float32, shards of {ROWS_A_SHARD:,} rows, a core as fast as the one that was "
        f"measured ({rate:,.0f} rows a second, `results/shards.md`).",
        "",
        "| | moments | a diagnosis |",
        "|---|---|---|",
    ]
    table: dict[str, list[str]] = {}
    for reads, products in PASSES.values():
        network = reads * size / NETWORK / NODES / 3600
        cores = N * products / rate / (NODES * CORES) / 3600
        states = N / ROWS_A_SHARD * state * (2 if reads > 1 else 1)
        slower = "network" if network > cores else "cores"
        for name, value in {
            "bytes read": f"{reads * size / 1e15:.1f} PB",
            "hours of reading": f"{network:.1f}",
            "hours of sums on all cores": f"{cores:.1f}",
            "bytes of states that move": f"{states / 1e9:,.0f} GB",
            "node-hours, where both overlap": f"{NODES * max(network, cores):,.0f}",
            "the bottleneck": slower,
        }.items():
            table.setdefault(name, []).append(value)
    told += [f"| {name} | {' | '.join(values)} |" for name, values in table.items()]
    text = "\n".join(told) + "\n"
    print(text)
    (RESULTS / "on_paper.md").write_text(text)


if __name__ == "__main__":
    main()
