"""What share of a training step of MiniLM is the whole penalty: bars, selection, entropy, and their gradient?

    python benchmarks/bench_persistent_entropy.py

Random weights of MiniLM's size (6 layers, 384 features), 64 sequences of 32 tokens in two classes of 32, float32. Processor time of this process, one
thread; the median of repeats, in which the two alternate.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import uncone

ROWS, TOKENS, WIDTH = 64, 32, 384


def cpu_ms(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start)


def main() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=30522,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            num_hidden_layers=6,
            num_attention_heads=12,
        )
    ).train()
    ids, labels = torch.randint(1000, 30000, (ROWS, TOKENS)), torch.arange(ROWS) % 2
    optimizer, points = torch.optim.AdamW(model.parameters()), torch.randn(ROWS, WIDTH, requires_grad=True)

    def step() -> None:
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    print(
        f"torch {torch.__version__}, one thread, {ROWS} sequences of {TOKENS} tokens, median of {repeats} (processor time)"
    )
    for select in (True, False):
        penalty = uncone.PersistentEntropy(select=select)

        def alone(penalty: uncone.PersistentEntropy = penalty) -> None:
            penalty(points, labels).backward()

        alone()
        step()
        times = [(cpu_ms(alone), cpu_ms(step)) for _ in range(repeats)]
        penalty_ms, step_ms = (statistics.median(column) for column in zip(*times, strict=True))
        print(
            f"select={select!s:5}: penalty {penalty_ms:.2f} ms, step without it {step_ms:.0f} ms, {penalty_ms / step_ms:.2%} of the step"
        )


if __name__ == "__main__":
    main()
