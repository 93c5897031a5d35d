"""Train a small GPT-2 on WikiText-2 twice, without and with the rare-token gate, and print what the gate changed.

    pip install -e '.[hf]'
    python examples/train_with_gate.py --data FOLDER

FOLDER holds train.txt.xz, valid.txt.xz and test.txt.xz, one paragraph a line. Both models start from the same weights and see the same batches;
they are trained side by side, each on one thread.
"""
# ruff: noqa: T201 - what a script prints is its result

import argparse
import lzma
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import uncone
from uncone.rows import CenteredRows

Tensor = torch.Tensor
FREQUENT, RARE = 0.29, 0.19
"""Shares of the ids, sorted by their count in the training text, as the paper (Yu et al. 2022) groups them; between them is medium."""
GROUPS = ("rare", "medium", "frequent")
SPECIAL = ["<|endoftext|>", "<unk>"]
LENGTH = 128
WARM_UP = 0.05
TEXTS = ("train", "valid", "test")


@dataclass
class Text:
    """Ids of the three splits, and what the training text says of each id."""

    splits: dict[str, Tensor]
    vocab_size: int

    def __post_init__(self) -> None:
        self.counts = torch.bincount(self.splits["train"], minlength=self.vocab_size)
        by_count = torch.argsort(self.counts, descending=True, stable=True)
        frequent, rare = int(FREQUENT * self.vocab_size), int(RARE * self.vocab_size)
        self.group = torch.full((self.vocab_size,), GROUPS.index("medium"))
        self.group[by_count[:frequent]] = GROUPS.index("frequent")
        self.group[by_count[self.vocab_size - rare :]] = GROUPS.index("rare")

    def windows(self, split: str) -> Tensor:
        """(n, LENGTH), cut one after another."""
        ids = self.splits[split]
        return ids[: len(ids) // LENGTH * LENGTH].view(-1, LENGTH)


@dataclass
class Run:
    """One model, how it was trained, and what came of it."""

    name: str
    gate: uncone.RareTokenGate | None
    model: Any
    seconds: float = 0.0
    """Processor time of the training steps."""
    perplexity: dict[str, float] = field(default_factory=dict)
    geometry: dict[str, float] = field(default_factory=dict)


def train(run: Run, batches: Tensor, args: argparse.Namespace) -> None:
    """The training loop. Without a gate, too, the model is attached, so that both losses are computed in the same way."""
    optimizer = make_optimizer(run.model, args)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warm_up_and_decay(step, len(batches)))
    run.model.train()
    start, said = time.thread_time(), time.monotonic()
    with uncone.attach(run.model, gate=run.gate) as attached:
        for step, input_ids in enumerate(batches, 1):
            loss = run.model(input_ids=input_ids, labels=input_ids).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            attached.step()
            if step == len(batches) or time.monotonic() - said > 5:
                said = time.monotonic()
                print(f"{run.name:>8}: step {step} of {len(batches)}, loss {loss.item():.3f}", flush=True)
    run.seconds = time.thread_time() - start


def make_optimizer(model: Any, args: argparse.Namespace) -> torch.optim.Optimizer:
    if args.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=args.lr or 1.0, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=args.lr or 2e-3, betas=(0.9, 0.98), weight_decay=0.01)


def warm_up_and_decay(step: int, steps: int) -> float:
    warm = max(1, int(WARM_UP * steps))
    return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)))


@torch.no_grad()
def perplexity(model: Any, text: Text, split: str, batch: int) -> dict[str, float]:
    """exp of the mean loss a target: of all targets, and of the targets of each group."""
    model.eval()
    sums, counts = torch.zeros(len(GROUPS), dtype=torch.float64), torch.zeros(len(GROUPS))
    for input_ids in torch.split(text.windows(split), batch):
        targets = input_ids[:, 1:].flatten()
        logits = model(input_ids=input_ids).logits[:, :-1].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        sums.index_add_(0, text.group[targets], loss.double())
        counts += torch.bincount(text.group[targets], minlength=len(GROUPS))
    means = {"all": float(sums.sum() / counts.sum())} | dict(zip(GROUPS, (sums / counts).tolist(), strict=True))
    return {name: math.exp(mean) for name, mean in means.items()}


def geometry(model: Any, text: Text) -> dict[str, float]:
    """The head's rows: cosines as they are, and isotropy without their mean, which no probability depends on."""
    weight = model.get_output_embeddings().weight.detach()
    rows = uncone.open_rows(weight)
    moments = uncone.Moments.of(rows)
    rare = uncone.Moments.of(uncone.open_rows(weight[text.group == GROUPS.index("rare")]))
    return {
        "cosine": float(uncone.measure.mean_cosine(moments)),
        "rare cosine": float(uncone.measure.mean_cosine(rare)),
        "isotropy": float(uncone.measure.partition_isotropy(CenteredRows(rows, moments.mean()))),
    }


def read_text(folder: Path, vocab_size: int) -> Text:
    """Read in place, and cut into the ids of a byte-level BPE that is made from the training text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    missing = [f"{name}.txt.xz" for name in TEXTS if not (folder / f"{name}.txt.xz").is_file()]
    if missing:
        sys.exit(
            f"expected train.txt.xz, valid.txt.xz and test.txt.xz in {folder}, got no {', '.join(missing)}: give --data FOLDER"
        )
    lines = {name: lzma.decompress((folder / f"{name}.txt.xz").read_bytes()).decode().splitlines() for name in TEXTS}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        lines["train"], trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=SPECIAL, show_progress=False)
    )
    splits = {}
    for name, paragraphs in lines.items():
        encoded = tokenizer.encode_batch([f"{line}\n" for line in paragraphs if line.strip()])
        splits[name] = torch.tensor([i for e in encoded for i in e.ids])
    return Text(splits, tokenizer.get_vocab_size())


def make_model(vocab_size: int, args: argparse.Namespace) -> Any:
    """GPT-2 from a config, with random weights; nothing is downloaded. Without dropout, so that the runs differ by the gate alone."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(args.seed)
    config = GPT2Config(
        vocab_size=vocab_size, n_positions=LENGTH, n_embd=args.width, n_layer=args.layers, n_head=4, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # which is what it takes without, but with a notice
    return model


def make_batches(text: Text, args: argparse.Namespace) -> Tensor:
    """(steps, batch, LENGTH): windows in a random order, anew when all were used."""
    windows, random = text.windows("train"), torch.Generator().manual_seed(args.seed)
    n = args.steps * args.batch
    order = torch.cat([torch.randperm(len(windows), generator=random) for _ in range(-(-n // len(windows)))])
    return windows[order[:n]].view(args.steps, args.batch, LENGTH)


def train_and_measure(run: Run, text: Text, batches: Tensor, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    train(run, batches, args)
    run.perplexity = perplexity(run.model, text, args.split, args.batch)
    run.geometry = geometry(run.model, text)


def report(runs: list[Run], text: Text, args: argparse.Namespace) -> None:
    print("\n" + verdict(runs) + "\n")
    rows: list[tuple[str, list[str]]] = [("", [run.name for run in runs])]
    rows += [
        (f"perplexity, {group}", [f"{run.perplexity[group]:.1f}" for run in runs])
        for group in ("all", *reversed(GROUPS))
    ]
    rows += [
        ("isotropy I(W), centred", [f"{run.geometry['isotropy']:.4f}" for run in runs]),
        ("mean cosine, raw", [f"{run.geometry['cosine']:.4f}" for run in runs]),
        ("mean cosine of rare rows, raw", [f"{run.geometry['rare cosine']:.4f}" for run in runs]),
        ("tokens a second of one core", [f"{args.steps * args.batch * LENGTH / run.seconds:,.0f}" for run in runs]),
    ]
    for name, cells in rows:
        print(f"{name:30}" + "".join(f"{cell:>12}" for cell in cells))
    sizes = [int((text.group == i).sum()) for i in range(len(GROUPS))]
    targets = torch.bincount(text.group[text.windows(args.split)[:, 1:].flatten()], minlength=len(GROUPS))
    shares = [
        f"{name} {size:,} ids, {n:,} targets" for name, size, n in zip(GROUPS, sizes, targets.tolist(), strict=True)
    ]
    print(
        f"\nPerplexity is on the {args.split} text; a uniform guess has {text.vocab_size:,}. Groups by count in the training text: {'; '.join(shares)}."
    )
    print(
        "I(W) is of the head's rows without their mean, in (0, 1], 1 is even; a common direction of raw rows changes no probability."
    )
    for run in runs:
        if run.gate is not None:
            now = run.gate.status
            held = "not measured" if now.gated_share is None else f"{now.gated_share:.2%}"
            print(
                f"The gate of the run {run.name}: {now.rare_ids:,} ids are rare ({now.rare_share:.1%}), {now.rare_mass:.2%} of the "
                f"targets; held back in the last step: {held} of the gradient by the logits."
            )


def verdict(runs: list[Run]) -> str:
    plain, gated = runs[0], runs[1]

    def change(before: float, after: float) -> str:
        return f"from {before:.1f} to {after:.1f} ({after / before - 1:+.1%})"

    before, after = plain.perplexity, gated.perplexity
    cosines = plain.geometry["rare cosine"], gated.geometry["rare cosine"]
    return (
        f"The gate changed the perplexity of rare targets {change(before['rare'], after['rare'])} and of all targets "
        f"{change(before['all'], after['all'])}; the mean cosine of rare rows went from {cosines[0]:.2f} to {cosines[1]:.2f}."
    )


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/lm/wikitext-2"), help="folder of the text")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=8, help=f"windows of {LENGTH} tokens a step")
    parser.add_argument("--vocab", type=int, default=8192, help="ids of the tokenizer")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--modes", nargs="+", default=["relative"], help="of the gate; a run for each")
    parser.add_argument("--window", type=int, default=1000, help="steps that the gate counts over")
    parser.add_argument(
        "--optimizer", choices=("adamw", "sgd"), default="adamw", help="adamw rescales what the gate held back"
    )
    parser.add_argument("--lr", type=float, help="2e-3 with adamw, 1 with sgd")
    parser.add_argument("--split", choices=("valid", "test"), default="test", help="text of the perplexities")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args, start = parse(argv), time.monotonic()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    text = read_text(args.data, args.vocab)
    tokens = len(text.splits["train"])
    runs = [Run("plain", None, make_model(text.vocab_size, args))]
    for mode in args.modes:
        gate = uncone.RareTokenGate(text.vocab_size, mode=mode, window=args.window)
        runs.append(Run(mode, gate, make_model(text.vocab_size, args)))
    size = sum(p.numel() for p in runs[0].model.parameters())
    print(
        f"{text.vocab_size:,} ids, {tokens:,} tokens of training text; GPT-2 of {size:,} parameters, {args.steps} steps of "
        f"{args.batch * LENGTH:,} tokens, {args.optimizer}, seed {args.seed}",
        flush=True,
    )
    torch.set_num_threads(1)
    batches = make_batches(text, args)
    with ThreadPoolExecutor(len(runs)) as threads:
        list(threads.map(lambda run: train_and_measure(run, text, batches, args), runs))
    report(runs, text, args)
    print(f"All of it took {time.monotonic() - start:.0f} s.")


if __name__ == "__main__":
    main()
