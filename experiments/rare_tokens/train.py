"""Train one cell, or go on with it; its result is one JSON file, and the model lies in the work folder.

    python experiments/rare_tokens/train.py core.toml --arm column --rate 2e-3 --seed 0 [--tied] [--batch 32] --data FOLDER

A kill loses at most `SAVE_EVERY` steps. Under `torchrun` the batch is shared by the ranks.
"""

import argparse
import json
import lzma
import math
import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from arms import ARMS, Arm, freeze, groups
from text import Text

import uncone
from uncone.atomic import write_bytes, write_text
from uncone.errors import InputError

HERE = Path(__file__).parent
RESULTS, WORK = HERE / "results", HERE / "work"
DATA = HERE.parents[2] / "shared" / "data" / "lm" / "wiki-en-2018"
PARTS = ("text", "model", "training")  # of a config
SAVE_EVERY, LOG_EVERY = 500, 50
DIVERGED = 1.0  # nats above a uniform guess


@dataclass(frozen=True)
class Cell:
    """One training."""

    config: str
    arm: str
    rate: float
    seed: int
    tied: bool = False
    batch: int = 8

    @property
    def name(self) -> str:
        size = f"-batch{self.batch}" if self.batch != 8 else ""
        return f"{self.config}-{self.arm}-{self.rate:g}-{self.seed}{'-tied' * self.tied}{size}"

    @property
    def result(self) -> Path:
        return RESULTS / "cells" / f"{self.name}.json"

    @property
    def options(self) -> list[str]:
        """Of this command, beside the config and the folders."""
        of = ["--arm", self.arm, "--rate", f"{self.rate:g}", "--seed", str(self.seed)]
        return [*of, "--batch", str(self.batch), *["--tied"] * self.tied]


def read_config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read the config {path}: {error}") from error


def make_model(config: dict[str, Any], vocabulary: int, cell: Cell) -> Any:
    """Without dropout, so that cells differ by their arm alone."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(cell.seed)
    of, none = config["model"], dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    shape = {"n_positions": of["length"] + 1, "n_embd": of["width"], "n_layer": of["layers"], "n_head": of["heads"]}
    shape |= {"activation_function": of.get("activation", "gelu_new")}
    made = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary, **shape, **none, bos_token_id=0, eos_token_id=0, tie_word_embeddings=cell.tied
        )
    )
    if not cell.tied:
        torch.nn.init.normal_(made.lm_head.weight, std=0.02)
    made.loss_type = "ForCausalLM"
    return made


class Windows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """In the order of a seed, so that a cell sees the same batches on any number of ranks."""

    def __init__(self, windows: torch.Tensor, n: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        rounds = [torch.randperm(len(windows), generator=random) for _ in range(-(-n // len(windows)))]
        self._windows, self._order = windows, torch.cat(rounds)[:n]

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        window = self._windows[self._order[i]]
        return {"input_ids": window, "labels": window}


def train(cell: Cell, config: dict[str, Any], text: Text, work: Path) -> dict[str, Any]:
    """The result, whose model lies in work/NAME/model."""
    length, counts, n = config["model"]["length"], text.counts(), config["training"]["steps"] * cell.batch
    parts = max(1, math.ceil(n * length / len(text.ids("train-00"))))
    model, examples = make_model(config, text.vocabulary, cell), Windows(text.windows(parts, length), n, cell.seed)
    result = fit(cell, ARMS[cell.arm], config, work, model, examples, counts, save=text.save)
    return result | {"median_count_of_rare": float(counts[groups(counts) == 2].median())}


def fit(
    cell: Cell,
    arm: Arm,
    config: dict[str, Any],
    work: Path,
    model: Any,
    examples: Any,
    counts: torch.Tensor,
    *,
    save: Callable[[Path], object],
    attached_with: dict[str, Any] | None = None,
    collator: Any = None,
) -> dict[str, Any]:
    """Trains `model` on `examples` in their order, or goes on with it; what the result of any cell has."""
    import transformers
    from transformers.trainer_utils import get_last_checkpoint

    of, folder = config["training"], work / "cells" / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    check_folder(folder, {"cell": asdict(cell)} | {part: config[part] for part in PARTS})
    steps = of["steps"]
    transformers.set_seed(cell.seed)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    arguments = transformers.TrainingArguments(
        str(folder / "checkpoints"),
        max_steps=steps,
        per_device_train_batch_size=cell.batch // ranks,
        learning_rate=cell.rate,
        lr_scheduler_type="linear",
        warmup_steps=int(of["warm_up"] * steps),
        max_grad_norm=of["clip"],
        weight_decay=0.0,
        logging_steps=LOG_EVERY,
        save_steps=SAVE_EVERY,
        save_total_limit=1,
        seed=cell.seed,
        bf16=of.get("bf16", False),
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    given = (attached_with or {}) | arm.attached(counts)
    options = given.pop("options", uncone.CrossEntropyOptions())
    backend = "triton" if torch.cuda.is_available() else "chunk"
    attached = uncone.attach(model, **given, options=replace(options, backend=backend))
    run = cell.result.with_suffix(".jsonl")
    run.parent.mkdir(parents=True, exist_ok=True)
    last = get_last_checkpoint(str(folder / "checkpoints")) if (folder / "checkpoints").is_dir() else None
    if last is None:
        run.unlink(missing_ok=True)  # of a run that was stopped before it had a checkpoint
    monitor = uncone.Monitor(run, model, every=of["monitor_every"], counts=counts)
    watch = Watch(len(counts))
    drawn = [heads(transformers, folder / "heads", config["picture"]["steps"])] if "picture" in config else []

    class Trainer(transformers.Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    trainer = Trainer(
        model,
        arguments,
        data_collator=collator,
        train_dataset=examples,
        callbacks=[attached.callback, monitor.callback, *arm.callbacks(model), watch.callback(transformers), *drawn],
        optimizers=(arm.optimizer(model, cell.rate), None),
    )
    if arm.frozen:
        freeze(uncone.table_parameters(model)[0], counts, lambda: trainer.state.global_step < arm.frozen * steps)
    earlier = json.loads((folder / "time.json").read_text()) if last and (folder / "time.json").exists() else 0.0
    watch.began, watch.clock = time.monotonic() - earlier, folder / "time.json"
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=last)
    attached.detach()
    monitor.detach()
    if trainer.is_world_process_zero():
        model.save_pretrained(folder / "model")
        save(folder / "model")
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    losses = [(one["step"], one["loss"]) for one in trainer.state.log_history if "loss" in one]
    return {
        "cell": asdict(cell),
        "config": {part: config[part] for part in PARTS},
        "commit": commit(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "seconds": round(time.monotonic() - watch.began, 1),
        "diverged": watch.diverged,
        "monitor": packed(run).name if trainer.is_world_process_zero() else run.name,
        "losses": losses,
    }


def heads(transformers: Any, folder: Path, steps: list[int]) -> Any:
    """A callback that keeps the head as it is after these steps, for the picture."""

    class Callback(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            if state.global_step in steps and state.is_world_process_zero:
                folder.mkdir(exist_ok=True)
                np.save(
                    folder / f"{state.global_step}.npy", model.get_output_embeddings().weight.detach().cpu().numpy()
                )

    return Callback()


def packed(run: Path) -> Path:
    """The monitor's file with numbers of six digits, compressed: `uncone watch` opens it."""

    def short(value: Any) -> Any:
        return float(f"{value:.6g}") if isinstance(value, float) and abs(value) < 1e6 else value

    lines = [json.loads(line) for line in run.read_text().splitlines()]
    text = "".join(json.dumps({name: short(of) for name, of in line.items()}) + "\n" for line in lines)
    made = run.with_name(run.name + ".xz")
    write_bytes(made, lzma.compress(text.encode(), preset=9))
    run.unlink()
    return made


class Watch:
    """Stops a run that diverged, and keeps its time over stops."""

    def __init__(self, vocabulary: int) -> None:
        self.most, self.diverged = math.log(vocabulary) + DIVERGED, False
        self.began, self.clock = 0.0, Path()

    def callback(self, transformers: Any) -> Any:
        watch = self

        class Callback(transformers.TrainerCallback):  # type: ignore[misc]
            def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
                loss = (logs or {}).get("loss")
                if loss is not None and not loss < watch.most:
                    watch.diverged = control.should_training_stop = True

            def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                write_text(watch.clock, json.dumps(time.monotonic() - watch.began))

        return Callback()


def check_folder(folder: Path, what: dict[str, Any]) -> None:
    """InputError where a checkpoint there is of another config."""
    kept, said = folder / "cell.json", json.dumps(what, indent=1)
    if kept.exists() and kept.read_text() != said:
        raise InputError(f"expected a cell of this config in {folder}, got one of another: remove the folder")
    write_text(kept, said)


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, cwd=HERE)
    return done.stdout.strip() or "unknown"


def parser(data: Path = DATA, work: Path = WORK) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("config", type=Path)
    made.add_argument("--data", type=Path, default=data, help=f"folder of {data.name}")
    made.add_argument("--work", type=Path, default=work, help="folder of models and ids")
    return made


def main(arguments: list[str] | None = None) -> None:
    made = parser()
    made.add_argument("--arm", choices=list(ARMS), required=True)
    made.add_argument("--rate", type=float, required=True)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--tied", action="store_true")
    made.add_argument("--batch", type=int, default=8)
    asked = made.parse_args(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    path = asked.config if asked.config.exists() else HERE / asked.config
    config = read_config(path)
    cell = Cell(config["name"], asked.arm, asked.rate, asked.seed, asked.tied, asked.batch)
    text = Text(asked.data, asked.work, config["text"]["vocabulary"], config["text"]["tokenizer_shards"])
    keep(cell, train(cell, config, text, asked.work))


def keep(cell: Cell, result: dict[str, Any]) -> None:
    if int(os.environ.get("RANK", "0")) == 0:
        write_text(cell.result, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
