"""Which learning rate is best for each batch size, on shorter runs without decay? Writes results/sweep.jsonl; a run that is there is not run again.

nice -n 15 python experiments/saturation/sweep.py
"""

import json
from dataclasses import replace

from network import Model, learning_rate
from runs import HERE, Cell, Judge, Stream
from source import Source

from training import one_thread, write_lines

TOKENS = {2048: 16_000_000, 32768: 50_000_000}
PEAKS = {2048: (0.002, 0.004, 0.008, 0.016, 0.032), 32768: (0.004, 0.008, 0.016, 0.032, 0.064)}
WIDTHS = (4, 16, 64)


def main() -> None:
    """Excess loss at the end of every short run."""
    one_thread()
    judge, target = Judge(Source()), HERE / "results" / "sweep.jsonl"
    lines = [json.loads(line) for line in target.read_text().splitlines()] if target.exists() else []
    done = {(one["width"], one["batch"], one["peak"]) for one in lines}
    for width in WIDTHS:
        for batch, peaks in PEAKS.items():
            for peak in peaks:
                if (width, batch, peak) in done:
                    continue
                cell = Cell(width, batch, 0.0, 0)
                training = replace(cell.training(128), steps=TOKENS[batch] // batch, peak=peak)
                model, stream = Model(training.shape, 0), Stream(judge.source, batch, 1)
                for step in range(training.steps):
                    model.gradients(stream.batch())
                    model.adamw(learning_rate(step, training.steps, peak), 0.0)
                lines.append({"width": width, "batch": batch, "peak": peak, "excess": judge(model)["excess"]})
                print(lines[-1], flush=True)
                write_lines(target, lines)


if __name__ == "__main__":
    main()
