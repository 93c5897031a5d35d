"""Which part of the gradient pushes which rows: trained and untrained heads, on text of their own and of others.

    nice python experiments/gradients/run.py

Writes results/SUBJECT.json, results/training.jsonl (the monitor's lines of one training run) and results/gradients.md. A subject whose file
is there is not computed again. The data lies in ../shared/data.
"""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import models
import torch

import uncone
from uncone.diagnosis.why.gradients.gradients import gradient_ledger
from uncone.diagnosis.why.gradients.record import GradientLedger, RowGradients
from uncone.diagnosis.why.margins.margins import margin_claim
from uncone.model.last_states import States

RESULTS = Path(__file__).parent / "results"
WINDOWS, TOKENS, TRAINED, EVERY = 512, 40_000, 1000, 50
GROUPS = ("frequent", "medium", "rare", "never")
OF_GROUP = [field.name for field in fields(RowGradients) if field.name not in ("name", "rows", "targets", "net")]
OF_LEDGER = ["tokens", "rare_targets", "nats", "zero_sum"]
OF_LEDGER += ["mean_state_share", "mean_row_share", "state_to_minus_row", "logit_of_mean_row"]
Subject = tuple[States, torch.Tensor | None]
SUBJECTS: dict[str, Callable[[], Subject]] = {
    "stories_own": lambda: (models.stories_states(TOKENS), None),
    "stories_wiki": lambda: (models.stories_on_wiki(TOKENS), None),
    "gpt2_untrained": lambda: models.gpt2_states("untrained", WINDOWS),
    "gpt2_plain": lambda: models.gpt2_states("plain", WINDOWS),
    "gpt2_gated": lambda: models.gpt2_states("relative", WINDOWS),
}


def plain(part: Any) -> Any:
    """A part of a record as plain values."""
    return json.loads(json.dumps(part, default=lambda x: dict(vars(x))))


def measure(name: str) -> dict[str, Any]:
    """The ledger and the margins of a subject, made once."""
    kept = RESULTS / f"{name}.json"
    if not kept.exists():
        states, counts = SUBJECTS[name]()
        found = {"ledger": plain(gradient_ledger(states, counts=counts)), "margins": plain(margin_claim(states))}
        kept.write_text(json.dumps(found, indent=1) + "\n")
    read: dict[str, Any] = json.loads(kept.read_text())
    return read


def summary_of(ledger: GradientLedger) -> dict[str, Any]:
    """A ledger as one flat line."""
    line: dict[str, Any] = {name: getattr(ledger, name) for name in OF_LEDGER}
    for group in ledger.groups:
        line |= {f"{group.name}.{name}": getattr(group, name) for name in OF_GROUP}
        line[f"{group.name}.net"] = group.net.value
    for drift in ledger.drifts:
        name = drift.optimiser.replace(" ", "_").lower()
        line |= {f"drift.{name}": drift.share, f"drift.{name}_to_mean_row": drift.to_mean_row}
    return line


def training() -> list[dict[str, Any]]:
    """The monitor's lines of the first steps of the ungated model, and what the mean row did meanwhile; made once."""
    kept = RESULTS / "training.jsonl"
    if kept.exists():
        return [json.loads(line) for line in kept.read_text().splitlines()]
    _, text, counts = models.gpt2("untrained")
    example = models.imported("examples", "train_with_gate")
    args = example.parse(["--steps", str(models.STEPS)])
    model, batches = example.make_model(text.vocab_size, args), example.make_batches(text, args)[:TRAINED]
    optimizer = example.make_optimizer(model, args)
    lines = list[dict[str, Any]]()
    model.train()
    with uncone.Monitor(None, model, counts=counts, targets=1024) as monitor:
        for step, ids in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = 2e-3 * example.warm_up_and_decay(step, models.STEPS)
            model(input_ids=ids, labels=ids).loss.backward()
            if step % EVERY == 0:
                monitor.measure(step)
                mean_row = model.lm_head.weight.detach().double().mean(0)
                lines.append(
                    {"step": step + 1} | summary_of(monitor.ledger()) | {"mean_row_norm": float(mean_row.norm())}
                )
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    kept.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def _cell(value: Any, form: str = ".3g") -> str:
    return "-" if value is None else format(value, form)


def _table(heads: list[str], rows: list[list[Any]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *[[str(cell) for cell in row] for row in rows]]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def tables(found: dict[str, dict[str, Any]], lines: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    text = [
        "# Where the push comes from",
        "",
        "`python experiments/gradients/run.py`",
        "",
        "## Parts of the gradient",
        "",
    ]
    parts, means, margins = list[list[Any]](), list[list[Any]](), list[list[Any]]()
    for name, both in found.items():
        ledger = both["ledger"]
        for group in ledger["groups"]:
            if group["name"] == "all":
                continue
            pushed = group["pushed_by_frequent"] + group["pushed_by_rare"]
            net = group["net"]
            width = (net["interval"][1] - net["interval"][0]) / 2
            parts.append(
                [
                    name,
                    group["name"],
                    group["rows"],
                    group["targets"],
                    *(_cell(group[x], ".2g") for x in ("pull_norm", "frequent_norm", "rare_norm")),
                    _cell(100 * group["pulled"]),
                    _cell(100 * pushed),
                    f"{group['pushed_by_rare'] / pushed:.1%}",
                    f"{100 * net['value']:.2g} ± {100 * width:.2g}",
                    *(_cell(group[x]) for x in ("cosine", "push_cosine", "along", "toward")),
                    _cell(group["adam"], ".2g"),
                ]
            )
        adam = ledger["drifts"][1]
        means.append(
            [
                name,
                ledger["tokens"],
                _cell(ledger["nats"], ".4g"),
                _cell(ledger["zero_sum"], ".1g"),
                *(_cell(one["share"], ".2g") for one in ledger["drifts"]),
                _cell(adam["to_mean_state"]),
                _cell(adam["to_mean_row"]),
                *(
                    _cell(ledger[x])
                    for x in ("mean_state_share", "mean_row_share", "state_to_minus_row", "logit_of_mean_row")
                ),
            ]
        )
        margins += [
            [
                name,
                head["name"],
                _cell(head["margin"], ".4g"),
                _cell(head["by_norm"]),
                f"{head['positive']:.2%}",
                _cell(head["nats"], ".4g"),
                _cell(head["change"], ".2g"),
            ]
            for head in both["margins"]["heads"]
        ]
    text += _table(
        [
            "subject",
            "rows of",
            "rows",
            "targets",
            "pull (a)",
            "push of frequent (b)",
            "push of rare (c)",
            "pulled, %",
            "pushed, %",
            "of it by rare",
            "net, %",
            "cosine",
            "of pushes",
            "along mean state",
            "cosine with it",
            "Adam along it",
        ],
        parts,
    )
    text += ["## The mean", ""]
    text += _table(
        [
            "subject",
            "targets",
            "nats",
            "sum of gradients",
            "drift SGD",
            "Adam",
            "coupled Adam",
            "Adam's cosine to mean state",
            "to mean row",
            "mean state over norm",
            "mean row over norm",
            "cos(mean state, -mean row)",
            "mean of abs. h . mean row",
        ],
        means,
    )
    text += ["## Margins", ""]
    text += _table(["subject", "head", "mean margin", "over rows' norm", "above 0", "nats", "largest change"], margins)
    text += ["## One training run, read by the monitor", ""]
    rows = [
        [
            line["step"],
            _cell(line["nats"], ".4g"),
            *(_cell(line.get(f"rare.{x}"), ".2g") for x in ("pull_norm", "frequent_norm", "rare_norm")),
            *(_cell(line.get(f"{x}.push_cosine")) for x in ("frequent", "rare", "never")),
            _cell(line.get("rare.toward")),
            *(
                _cell(line[x])
                for x in (
                    "mean_state_share",
                    "drift.adam",
                    "drift.adam_to_mean_row",
                    "state_to_minus_row",
                    "mean_row_norm",
                )
            ),
        ]
        for line in lines
    ]
    text += _table(
        [
            "step",
            "nats",
            "rare rows: pull",
            "push of frequent",
            "push of rare",
            "cosine of pushes, frequent",
            "rare",
            "never",
            "rare: cosine with mean state",
            "mean state over norm",
            "drift Adam",
            "to mean row",
            "cos(mean state, -mean row)",
            "norm of mean row",
        ],
        rows,
    )
    return "\n".join(text)


if __name__ == "__main__":
    RESULTS.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    everything = {name: measure(name) for name in SUBJECTS}
    (RESULTS / "gradients.md").write_text(tables(everything, training()))
