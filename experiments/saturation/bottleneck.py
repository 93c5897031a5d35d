"""What the heads of two small models pass back and read: one plan of cells, each made once.

    nice python experiments/saturation/bottleneck.py [--work build/bottleneck]

Subjects: stories260K on stories that it wrote itself (sampled at temperature 1, seed 0) and on text from WikiText-2, which it
was not trained for; and the two models that examples/train_with_gate.py trains with its defaults, without and with
the gate, on the test text of WikiText-2. A cell that is in results/bottleneck.json is not computed again.
"""

import argparse
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from uncone.model.last_states import States, states_of
from uncone.saturation.head.excision.excision import excise
from uncone.saturation.head.gradient.gradient_share import kept_gradient_share

ROOT = Path(__file__).parents[2]
DATA = ROOT / "../shared/data"
RESULTS = Path(__file__).parent / "results"
TOKENS = 20_000
STORIES, STORY_TOKENS = 160, 200


def record_of(part: Any) -> dict[str, Any]:
    """A part of a record as plain values."""
    read: dict[str, Any] = json.loads(json.dumps(part, default=lambda x: dict(vars(x))))
    return read


PARTS: dict[str, Callable[[States], dict[str, Any]]] = {
    "gradient_share": lambda states: record_of(kept_gradient_share(states)),
    "excision": lambda states: record_of(excise(states)),
}


def imported(folder: str, *names: str) -> list[Any]:
    """Modules of a folder that is no package."""
    sys.path.insert(0, str(ROOT / folder))
    try:
        return [__import__(name) for name in names]
    finally:
        sys.path.pop(0)


def wiki(name: str) -> str:
    """Its lines that are not empty, as the example reads them."""
    lines = lzma.decompress((DATA / "lm/wikitext-2" / f"{name}.txt.xz").read_bytes()).decode().splitlines()
    return "".join(f"{line}\n" for line in lines if line.strip())


def stories(work: Path) -> Path:
    folder = work / "stories260K"
    if not folder.is_dir():
        imported("experiments/stories260k", "convert")[0].convert(DATA / "models/stories260K", folder)
    return folder


def own_stories(work: Path) -> list[str]:
    """Stories that the model writes: at temperature 1 it is the true distribution of its text."""
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    folder = stories(work)
    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(0)
    start = torch.full((STORIES, 1), 1)
    ids = model.generate(start, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=STORY_TOKENS, pad_token_id=2)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    written = list[str]()
    for row in ids[:, 1:].tolist():
        # llama2.c begins the next story with <s>: only the first is kept
        end = next((at for at, token in enumerate(row) if token in (1, 2)), len(row))
        written.append(tokenizer.decode(row[:end]))
    return written


def example_models(work: Path) -> dict[str, Path]:
    """The models of the example, saved with their tokenizer; trained where they are not there."""
    folders = {name: work / f"example-{name}" for name in ("plain", "relative")}
    if all((folder / "tokenizer.json").is_file() for folder in folders.values()):
        return folders
    import uncone

    (example,) = imported("examples", "train_with_gate")
    args = example.parse(["--data", str(DATA / "lm/wikitext-2")])
    text = example.read_text(args.data, args.vocab)
    tokenizer = example_tokenizer(example, args.vocab)
    first = tokenizer.encode(wiki("test").partition("\n")[0] + "\n").ids
    assert first == text.splits["test"][: len(first)].tolist(), "another tokenizer than the example's"
    batches = example.make_batches(text, args)
    for name, folder in folders.items():
        gate = None if name == "plain" else uncone.RareTokenGate(text.vocab_size, mode=name, window=args.window)
        run = example.Run(name, gate, example.make_model(text.vocab_size, args))
        example.train(run, batches, args)
        run.model.save_pretrained(folder)
        tokenizer.save(str(folder / "tokenizer.json"))
    return folders


def example_tokenizer(example: Any, vocabulary: int) -> Any:
    """The example's byte-level BPE, which it does not keep."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=example.SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(wiki("train").splitlines(), trainer)
    return tokenizer


SUBJECTS: dict[str, Callable[[Path], tuple[Path, list[str]]]] = {
    "stories260K, own stories": lambda work: (stories(work), own_stories(work)),
    "stories260K, WikiText-2": lambda work: (stories(work), [wiki("test")[:100_000]]),
    "example without gate": lambda work: (example_models(work)["plain"], [wiki("test")[:200_000]]),
    "example with gate": lambda work: (example_models(work)["relative"], [wiki("test")[:200_000]]),
}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown of the gradient's shares and of the excised directions."""
    lines = [
        "| subject | V x D | targets | squares, batch (95%) | chance | times | norms, tokens | chance of norms |",
        "|---" * 8 + "|",
    ]
    for subject, parts in results.items():
        share = parts.get("gradient_share")
        for group in share["groups"] if share else ():
            value, (low, high) = (
                group["sum_squares"]["value"],
                group["sum_squares"]["interval"] or (float("nan"),) * 2,
            )
            lines.append(
                f"| {subject} | {share['vocabulary']:,} x {share['dimensions']} | {group['name']} ({group['tokens']:,}) | "
                f"{value:.2%} ({low:.2%}-{high:.2%}) | {share['chance_squares']:.2%} | {value / share['chance_squares']:.2f} | "
                f"{group['mean_norms']['value']:.2%} | {share['chance_norms']:.2%} |"
            )
    lines += [
        "",
        "| subject | directions | k | energy | change of loss (95%) | alignment | chance | overlap | chance |",
        "|---" * 9 + "|",
    ]
    for subject, parts in results.items():
        for row in parts.get("excision", {"rows": ()})["rows"]:
            low, high = row["change"]["interval"] or (float("nan"),) * 2
            lines.append(
                f"| {subject} | {row['directions']} | {row['k']} | {row['energy']:.1%} | {row['change']['value']:+.4f} "
                f"({low:+.4f} to {high:+.4f}) | {row['alignment']:.3f} | {row['chance']:.3f} | {row['overlap']:.3f} | "
                f"{row['overlap_chance']:.3f} |"
            )
    verdicts = [
        f"- {subject}, {name}: {part['verdict']}"
        for subject, parts in results.items()
        for name, part in parts.items()
        if "verdict" in part
    ]
    return "\n".join([*lines, "", *verdicts]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=ROOT / "build/bottleneck", help="where models are made")
    work = parser.parse_args().work
    work.mkdir(parents=True, exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / "bottleneck.json"
    results = json.loads(target.read_text()) if target.exists() else {}
    torch.set_num_threads(1)
    for subject, prepare in SUBJECTS.items():
        parts = results.setdefault(subject, {})
        left = [name for name in PARTS if name not in parts]
        if not left:
            continue
        folder, texts = prepare(work)
        states = states_of(folder, texts, most=TOKENS)
        for name in left:
            parts[name] = PARTS[name](states)
            target.write_text(json.dumps(results, indent=1) + "\n")
            print(subject, name, parts[name].get("verdict", ""), flush=True)
    (RESULTS / "bottleneck.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    main()
