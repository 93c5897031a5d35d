"""Write results/NAME.md from the cells' result files; every number comes from them.

python experiments/translation/mt_tables.py multi30k.toml
python experiments/translation/mt_tables.py multi30k.toml --recompute CELL --data FOLDER --work EMPTY    # one cell anew
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "rare_tokens"))
from claims import GAO, YU, Claim, row, verdict
from mt_fill import cells
from mt_measure import measure
from mt_train import ARMS, BETAS, HERE, RESULTS, one_cell, opened, parser, train
from runs import RARE, Effect, Numbers, Of, Run, at_best, runs_of, written
from scipy.stats import norm
from tables import NUMBERS, every_cell, recompute

from uncone.atomic import write_text
from uncone.errors import InputError

BASE, CONTROL = "mle", "adamw999"
DRAWS = 2000
LENGTHS, WORDS = slice(8, 10), slice(10, 12)  # places in the numbers of a sentence
Array = np.ndarray[Any, Any]


def bleu(sums: Array) -> Array:
    """Of sums over sentences (..., 10); orders without a match are smoothed as sacrebleu's."""
    matches, every, (said, reference) = sums[..., :4], sums[..., 4:8], np.moveaxis(sums[..., LENGTHS], -1, 0)
    smoothed = np.where(matches > 0, matches, 0.5 ** np.cumsum(matches == 0, axis=-1)) / np.maximum(every, 1)
    brevity = np.minimum(0.0, 1 - reference / np.maximum(said, 1))
    return np.where(matches.any(-1), 100 * np.exp(brevity + np.log(smoothed).mean(-1)), 0.0)


def sentences(run: Run, rare: bool = False) -> Array:
    """(N, 12) of all test sentences, or of those whose reference has a rare word."""
    found = np.array(run.result["measured"]["sentences"], float)
    return found[found[:, WORDS.start] > 0] if rare else found


def difference(some: list[Array], others: list[Array], seed: int = 0) -> Effect:
    """In BLEU, of S seeds of two arms on the same sentences (N, 10). Sentences are drawn again, for both arms alike,
    and so are seeds, whose means are spread by the root of S / (S - 1): draws of few seeds vary too little."""
    random, n, many = np.random.default_rng(seed), len(some[0]), len(some)
    gain = np.array([bleu(a.sum(0)) - bleu(b.sum(0)) for a, b in zip(some, others, strict=True)])
    weights = random.multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(float)
    drawn = np.stack([bleu(weights @ a) - bleu(weights @ b) for a, b in zip(some, others, strict=True)], axis=1)
    of_seeds = np.take_along_axis(drawn, random.integers(many, size=(DRAWS, many)), axis=1).mean(1)
    middle = drawn.mean(1)
    means = middle + math.sqrt(many / max(many - 1, 1)) * (of_seeds - middle)
    low, high = np.percentile(means, (2.5, 97.5))
    smallest = float(norm.ppf(0.975) + norm.ppf(0.8)) * float(means.std(ddof=1))
    return Effect(float(gain.mean()), float(low), float(high), smallest, many)


def against(runs: list[Run], base: list[Run], rare: bool) -> Effect | None:
    """Over the seeds that both have; None without any."""
    by = [{run.cell.seed: sentences(run, rare)[:, : LENGTHS.stop] for run in of} for of in (runs, base)]
    seeds = sorted(by[0].keys() & by[1].keys())
    if not seeds or not len(by[0][seeds[0]]):
        return None
    return difference([by[0][seed] for seed in seeds], [by[1][seed] for seed in seeds])


CLAIMS = (
    Claim(GAO, "Cosine regularisation raises BLEU", "27.30 to 28.38, WMT14 (verified)", lambda run: bleu_of(run), "BLEU",
          "cosreg", base=BASE),
    Claim(YU, "The gate raises BLEU", "27.30 to 28.70, WMT14 (recalled)", lambda run: bleu_of(run), "BLEU", "agg", base=BASE),
    Claim(YU, "The gate makes I(W) of the shared table higher", "unknown", lambda run: run["head", "partition_isotropy"],
          "I(W)", "agg", base=BASE, control=CONTROL),
)  # fmt: skip


def claim_row(claim: Claim, best: dict[str, list[Run]]) -> list[str]:
    """As `row`; intervals of BLEU are over sentences too."""
    if claim.unit != "BLEU":
        return row(claim, best)
    arms = (claim.arm, BASE), (CONTROL, BASE), (claim.arm, CONTROL)
    ours, control, less = (against(best.get(a, []), best.get(b, []), False) for a, b in arms)
    what, end = f"{claim.source}: {claim.text}", f"{CONTROL}: {written(control, 2)}"
    return [what, claim.paper, f"{written(ours, 2)} {claim.unit}", end, verdict(claim, ours, less)]


def of_score(name: str, key: str) -> Of:
    return lambda run: next(float(of[key]) for of in run.result["measured"]["scores"] if of["name"] == name)


def bleu_of(run: Run, rare: bool = False) -> float:
    return float(bleu(sentences(run, rare).sum(0)))


def columns(tests: list[str], base: list[Run]) -> dict[str, Callable[[list[Run]], str]]:
    """By their heads, what a row has of an arm's runs."""

    def mean(of: Of, form: str) -> Callable[[list[Run]], str]:
        return lambda runs: format(float(np.mean([of(run) for run in runs])), form)

    def less(rare: bool) -> Callable[[list[Run]], str]:
        return lambda runs: "-" if runs[0].cell.arm == BASE else written(against(runs, base, rare), 2)

    def of_no_targets(run: Run) -> float:
        sums = run.result["measured"]["documents"][0]
        return float(sums[11] / sum(sums[:4]))

    def found(run: Run) -> float:
        of = sentences(run)[:, WORDS].sum(0)
        return float(of[1] / max(of[0], 1))

    return {
        "rate": lambda runs: f"{runs[0].cell.rate:g}",
        "seeds": lambda runs: str(len(runs)),
        "loss": mean(Run.loss, ".3f"),
        "rare perplexity": mean(lambda run: math.exp(run.loss(RARE)), ",.0f"),
        "log ratio of rare": mean(Run.ratio, "+.2f"),
        "on ids without targets": mean(of_no_targets, ".2%"),
        **{f"BLEU {name}": mean(of_score(name, "bleu"), ".2f") for name in tests},
        "chrF": mean(of_score("all", "chrf"), ".2f"),
        "BLEU less MLE": less(False),
        "BLEU with rare words": mean(lambda run: bleu_of(run, True), ".2f"),
        "the same less MLE": less(True),
        "rare words found": mean(found, ".1%"),
        "cosine": mean(lambda run: run["head", "mean_cosine"], ".3f"),
        "centred": mean(lambda run: run["head", "mean_cosine_centred"], ".3f"),
        "I(W)": mean(lambda run: run["head", "partition_isotropy"], ".3f"),
        "I(W) centred": mean(lambda run: run["head", "partition_isotropy_centred"], ".3f"),
    }


def report(config: dict[str, Any]) -> str:
    every, of, model = list(cells(config)), config["training"], config["model"]
    runs, done = runs_of(every), sum(cell.result.exists() for cell in every)
    parts = [
        f"# Translation: {config['name']}\n",
        f"Marian with one table of {config['text']['vocabulary']:,} ids for both languages and the head, D "
        f"{model['width']}, {model['layers']} layers on either side; {of['batch']} pairs a step, {of['steps']:,} "
        f"steps, smoothing {of['label_smoothing']:g}, beam {config['measured']['beams']}. {done} of {len(every)} cells "
        f"whose rate is known are done, {len(runs)} are measured. One cell again, beside its kept numbers: `python "
        f"experiments/translation/mt_tables.py {config['name']}.toml --recompute CELL --work EMPTY`.\n",
    ]
    if runs:
        parts.append(caption(next(iter(runs.values()))))
    best = at_best(runs)
    of_arm = columns(config["measured"]["test"], best.get(BASE, []))
    parts += ["| arm | " + " | ".join(of_arm) + " |", "|" + "---|" * (len(of_arm) + 1)]
    for arm in dict.fromkeys(arm for block in config["cells"] for arm in block["arms"]):
        state = "none measured" if any(cell.result.exists() for cell in every if cell.arm == arm) else "not run"
        row = [make(best[arm]) for make in of_arm.values()] if arm in best else [state] + [""] * (len(of_arm) - 1)
        parts.append(f"| {ARMS[arm].text} | " + " | ".join(row) + " |")
    numbers: Numbers = {
        "loss": lambda run: f"{run.loss():.4f}",
        "rare perplexity": lambda run: f"{math.exp(run.loss(RARE)):,.0f}",
        "BLEU": lambda run: f"{bleu_of(run):.2f}",
    }
    return "\n".join([*parts, *every_cell(every, runs, numbers)]) + "\n"


def caption(run: Run) -> str:
    measured, rare = run.result["measured"], sentences(run, True)
    signatures = " and ".join(f"`{measured['scores'][0][key]}`" for key in ("bleu_signature", "chrf_signature"))
    return (
        f"A step has {run.result['targets_a_step']:,.0f} targets, and beta2 is {BETAS[1]:g} where no other is named. "
        f"{len(rare):,} of {len(sentences(run)):,} test sentences have rare words, {int(rare[:, WORDS.start].sum()):,} "
        f"together: at most {measured['rare_words']} times in the German training text, or never. Rare perplexity and "
        f"log ratio are of the {measured['ids'][2]:,} rarest of the ids that are targets, half of them at most "
        f"{measured['median_count_of_rare']:g} times an epoch; {measured['ids'][3]:,} ids have no targets, "
        "and what probability they get is in the table. Losses are "
        f"plain cross-entropy in nats a target of the validation text. Scores by sacrebleu, {signatures}. Differences "
        "are paired over sentences and seeds: a 95% bootstrap interval, and the smallest difference that such a design "
        "finds in 80% of its repetitions. With one seed they are of sentences alone. Two or three show poorly how "
        "far seeds vary, and intervals may be too narrow.\n"
    )


def main(arguments: list[str] | None = None) -> None:
    made = parser()
    made.add_argument(
        "--recompute", metavar="CELL", help="train and measure one cell anew, in a work folder of its own"
    )
    asked = made.parse_args(arguments)
    config = one_cell.read_config(asked.config if asked.config.exists() else HERE / asked.config)
    if asked.recompute:
        config, text = opened(asked)

        def made_again(cell: Any) -> dict[str, Any]:
            result = train(cell, config, text, asked.work)
            return result | {"measured": measure(cell, config, text, asked.work, asked.work / f"{cell.name}.txt.xz")}

        print(recompute(asked.recompute, cells(config), made_again, NUMBERS | {"BLEU": bleu_of}))
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_text(RESULTS / f"{config['name']}.md", report(config))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
