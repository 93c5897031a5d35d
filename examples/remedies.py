"""Train a small GPT-2 with an untied head plainly and under seven remedies, and print what each changed and what it cost.

    pip install -e '.[hf]'
    python examples/remedies.py --data FOLDER

FOLDER holds train.txt.xz, valid.txt.xz and test.txt.xz, one paragraph a line. All models start from the same weights, see the same batches, and are
trained on one thread each. One seed: a difference of a few percent says nothing. Every remedy is one line in `ARMS`.
"""
# ruff: noqa: T201 - what a script prints is its result

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import train_with_gate as base

import uncone
from uncone.rows import CenteredRows

Arguments = dict[str, Any]
LR = 2e-3


@dataclass
class Arm:
    """What is given to `attach`, the optimiser, and what follows each of its steps."""

    name: str
    attached: Callable[[int], Arguments] = lambda vocab_size: {}
    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda model: torch.optim.AdamW(
        model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.01
    )
    after: Callable[[Any], Any] | None = None


def table_adam(second_moment: str, betas: tuple[float, float]) -> Callable[[Any], torch.optim.Optimizer]:
    """Table and head in `TableAdam`, the rest in the AdamW of the plain arm."""
    rest = partial(torch.optim.AdamW, lr=LR, betas=(0.9, 0.98), weight_decay=0.01)
    options: Arguments = {"second_moment": second_moment, "betas": betas, "lr": LR, "weight_decay": 0.01}
    return lambda model: uncone.with_table_adam(model, rest, **options)


ARMS = (
    Arm("plain"),
    Arm("CosReg", lambda _: {"penalties": [uncone.CosinePenalty()]}),
    Arm("gate", lambda vocab_size: {"gate": uncone.RareTokenGate(vocab_size)}),
    Arm("beta2 .999", optimizer=table_adam("entry", (0.9, 0.999))),
    Arm("column", optimizer=table_adam("column", (0.9, 0.98))),
    Arm("factored", optimizer=table_adam("factored", (0.0, 0.999))),
    Arm("CenterRows", after=uncone.CenterRows),
    Arm("z-loss", lambda _: {"options": uncone.CrossEntropyOptions(z_loss=1e-4)}),
)


@dataclass
class Trained:
    """What came of an arm."""

    arm: Arm
    seconds: float = 0.0
    """Processor time of its steps."""
    perplexity: dict[str, float] = field(default_factory=dict)
    geometry: dict[str, float] = field(default_factory=dict)


def train(arm: Arm, model: Any, text: base.Text, batches: torch.Tensor, args: argparse.Namespace) -> Trained:
    """The loop of every arm."""
    torch.set_num_threads(1)
    optimizer = arm.optimizer(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: base.warm_up_and_decay(step, len(batches)))
    after = None if arm.after is None else arm.after(model)
    model.train()
    start = time.thread_time()
    with uncone.attach(model, **arm.attached(text.vocab_size)) as attached:
        for input_ids in batches:
            model(input_ids=input_ids, labels=input_ids).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            attached.step()
            if after is not None:
                after.step()
    seconds = time.thread_time() - start
    found = Trained(arm, seconds, base.perplexity(model, text, args.split, args.batch), geometry(model))
    print(f"{arm.name:>10}: perplexity {found.perplexity['all']:.1f}, {seconds:.0f} s", flush=True)
    return found


def make_model(vocab_size: int, args: argparse.Namespace) -> Any:
    """That of the other example, untied: the head has a mean row of its own, which no probability depends on."""
    model = base.make_model(vocab_size, args)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def geometry(model: Any) -> dict[str, float]:
    """Of the head's rows."""
    rows = uncone.open_rows(model.get_output_embeddings().weight.detach())
    moments = uncone.Moments.of(rows)
    norms = model.get_output_embeddings().weight.detach().norm(dim=1)
    return {
        "I(W)": float(uncone.measure.partition_isotropy(rows)),
        "centred": float(uncone.measure.partition_isotropy(CenteredRows(rows, moments.mean()))),
        "cosine": float(uncone.measure.mean_cosine(moments)),
        "longest": float(norms.max() / norms.median()),
    }


def table(found: list[Trained], steps: int) -> str:
    """In Markdown."""
    heads = (
        "remedy",
        "perplexity",
        "of rare targets",
        "mean cosine",
        "I(W)",
        "I(W) centred",
        "longest / median row",
        "ms a step",
    )
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for one in found:
        read = one.geometry
        cells = [f"{one.perplexity['all']:.1f}", f"{one.perplexity['rare']:.0f}", f"{read['cosine']:.3f}"]
        cells += [f"{read['I(W)']:.3g}", f"{read['centred']:.3g}", f"{read['longest']:.2f}"]
        lines.append("| " + " | ".join([one.arm.name, *cells, f"{1000 * one.seconds / steps:.0f}"]) + " |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Train all arms, two at a time, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/lm/wikitext-2"), help="folder of the text")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8, help=f"windows of {base.LENGTH} tokens a step")
    parser.add_argument("--vocab", type=int, default=8192, help="ids of the tokenizer")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--split", choices=("valid", "test"), default="test", help="text of the perplexities")
    parser.add_argument("--seed", type=int, default=0)
    args, start = parser.parse_args(argv), time.monotonic()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    text = base.read_text(args.data, args.vocab)
    batches = base.make_batches(text, args)
    models = [make_model(text.vocab_size, args) for _ in ARMS]  # here, as threads share one random state
    print(uncone.kappa_by_frequency(text.counts.numpy(), args.batch * (base.LENGTH - 1), beta2=0.98), flush=True)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda arm, model: train(arm, model, text, batches, args), ARMS, models))
    said = (
        f"GPT-2 of {args.layers} layers of {args.width}, untied head of {text.vocab_size:,} ids, {args.steps} steps of "
        f"{args.batch * base.LENGTH:,} tokens, seed {args.seed}; perplexities of the {args.split} text, rare: the rarest "
        f"{base.RARE:.0%} of the ids. All in {time.monotonic() - start:.0f} s."
    )
    print(f"\n{table(found, args.steps)}\n\n{said}")


if __name__ == "__main__":
    main()
