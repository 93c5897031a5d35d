"""Where does the row of a word that never occurs go? A trained model is frozen, and only that row is trained (Gao et al. 2019).

    python experiments/representation_degeneration/lone_word.py    # results/lone_word.md, about ten minutes

The loss of the row w is theorem 1's: mean over states h of log(exp(<h, w>) + C_h), where C_h are the other rows' terms. If a
direction v exists with <v, h> <= -margin for all h, gradient flow has |w| ~ log(t) / margin along the v of the largest
margin (as Soudry et al. 2018 of separable data). If none does, the loss has a minimum, at a finite row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from subjects import RESULTS, states

from uncone.atomic import write_text
from uncone.diagnosis.why.direction.cone import separate

SUBJECTS = ("stories260K, own stories", "stories260K, WikiText-2", "example without gate", "example with gate")
STATES, STEPS = 2000, 6000
DECAYS = (0.1, 1.0)
RATE, EPS, BETAS = 1e-2, 1e-8, (0.9, 0.98)
GATE = 1e-3
"""Of a word seen once in 1,000 steps: a / K of AGG. A word never seen has 0, and its row does not move."""
Array = np.ndarray


@dataclass(frozen=True)
class Lone:
    """States (n, d), the logs of C, and the row at the start."""

    h: Array
    log_c: Array
    start: Array

    def push(self, w: Array) -> Array:
        """Probability of the word at each state."""
        z = self.h @ w - self.log_c
        return np.exp(np.minimum(z, 0)) / (1 + np.exp(-np.abs(z)))

    def gradient(self, w: Array) -> Array:
        return self.push(w) @ self.h / len(self.h)

    def curvature(self, w: Array) -> Array:
        p = self.push(w)
        return (self.h * (p * (1 - p))[:, None]).T @ self.h / len(self.h)


def lone(given: object) -> Lone:
    """The first token that is no target of the states, with their other logits."""
    ids = np.setdiff1d(np.arange(len(given.head)), given.labels.numpy())
    row, keep = int(ids[len(ids) // 2]), np.linspace(0, len(given.states) - 1, STATES).astype(int)
    h, head = given.states.numpy()[keep].astype(np.float64), given.head.numpy().astype(np.float64)
    logits = h @ head.T
    logits[:, row] = -np.inf
    top = logits.max(1)
    return Lone(h, top + np.log(np.exp(logits - top[:, None]).sum(1)), head[row])


def flow(problem: Lone, largest: float = 1e60, decay: float = 0.0, gate: float = 1.0) -> Iterator[tuple[float, Array]]:
    """Gradient descent whose steps are as long as the curvature allows: (time, row) until the time is large."""
    w, t = problem.start.copy(), 0.0
    squares = np.square(problem.h).sum(1)
    while t < largest:
        p = problem.push(w)
        bound = gate * float((p * squares).mean()) + decay
        step = 1 / max(bound, 1e-300)
        w = w - step * (gate * p @ problem.h / len(p) + decay * w)
        t += step
        yield t, w


def descent(problem: Lone, steps: int = STEPS) -> Array:
    """Plain gradient descent at one rate, the inverse of the largest curvature."""
    w, rate = problem.start.copy(), 4 / np.linalg.eigvalsh(problem.h.T @ problem.h / len(problem.h))[-1]
    for _ in range(steps):
        w = w - rate * problem.gradient(w)
    return w


def adam(problem: Lone, decay: float = 0.0, gate: float = 1.0, steps: int = STEPS) -> Array:
    """Adam, or AdamW with a decay, on all states at once; the rate falls to 0 in the last half, so that it settles."""
    w, m, v = problem.start.copy(), 0.0, 0.0
    for t in range(1, steps + 1):
        g = gate * problem.gradient(w)
        m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
        rate = RATE * min(1.0, 2 * (1 - t / (steps + 1)))
        moved = (m / (1 - BETAS[0] ** t)) / (np.sqrt(v / (1 - BETAS[1] ** t)) + EPS)
        w = w - rate * (moved + decay * w)
    return w


def minimum(problem: Lone, decay: float) -> Array:
    """Of the loss with decay / 2 |w|^2: what descent has to end at."""
    d = problem.h.shape[1]
    return newton(
        problem, problem.start, lambda w: 0.5 * decay * float(w @ w), lambda w: decay * w, lambda _: np.full(d, decay)
    )


def adamw_end(problem: Lone, decay: float) -> Array:
    """Where AdamW stops: g / (|g| + eps) = -decay w for each entry, so g = -eps decay w / (1 - decay |w|).

    That is the slope of a convex barrier of the box |w| < 1 / decay, so the end is the only minimum of loss and barrier.
    """

    def barrier(w: Array) -> float:
        room = 1 - decay * np.abs(w)
        return float(EPS * (-np.abs(w) - np.log(room) / decay).sum()) if room.min() > 0 else float("inf")

    def slope(w: Array) -> Array:
        return EPS * decay * w / (1 - decay * np.abs(w))

    return newton(
        problem, np.zeros_like(problem.start), barrier, slope, lambda w: EPS * decay / (1 - decay * np.abs(w)) ** 2
    )


def newton(
    problem: Lone,
    start: Array,
    value: Callable[[Array], float],
    slope: Callable[[Array], Array],
    bend: Callable[[Array], Array],
) -> Array:
    """The minimum of the loss and a convex term, by Newton's method with steps that lower the sum."""

    def total(w: Array) -> float:
        z = problem.h @ w - problem.log_c
        return float(np.logaddexp(0, z).mean()) + value(w)

    w = start.copy()
    for _ in range(2000):
        g = problem.gradient(w) + slope(w)
        # outputs of a LayerNorm lie in a plane: nothing moves the row across it
        step = np.linalg.lstsq(problem.curvature(w) + np.diag(bend(w)), g, rcond=1e-13)[0]
        size, now = 1.0, total(w)
        if float(g @ step) <= 1e-15 * now:  # below the digits of the sum, where whole steps are right
            return np.asarray(w - step)
        while not total(w - size * step) <= now - 1e-4 * size * float(g @ step) and size > 1e-12:
            size /= 2
        if size <= 1e-12:  # the sum is as small as its digits can say
            break
        w = w - size * step
    return w


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def growth(problem: Lone, path: Callable[[], Iterator[tuple[float, Array]]], v: Array, margin: float) -> list[str]:
    """Norm, cosine and slope of the norm over ln t, by time; the slope beside 1 / margin."""
    lines, marks = [], [10.0**k for k in (2, 4, 8, 16, 32, 60)]
    before = (0.0, 0.0)
    for t, w in path():
        if marks and t >= marks[0]:
            now = (np.log(t), float(np.linalg.norm(w)))
            slope = (now[1] - before[1]) / (now[0] - before[0]) if before[0] else float("nan")
            share = "-" if np.isnan(slope) else f"{slope * margin:.2f}"
            lines.append(f"| 1e{round(np.log10(marks[0]))} | {now[1]:.2f} | {cosine(w, v):.3f} | {share} |")
            before = now
            while marks and t >= marks[0]:
                marks.pop(0)
    return lines


def subject(name: str) -> list[str]:
    problem = lone(states(name))
    found = separate(problem.h)
    v, margin = found.direction, found.margin
    told = (
        f"margin {margin:.4f} ({margin / found.mean_norm:.4f} of the mean norm)"
        if found.exists
        else f"none: {found.exists}"
    )
    lines = [f"## {name}\n", f"{STATES:,} states; direction that all avoid: {told}.\n"]
    lines += [
        "| time | norm | cosine to the direction | slope over ln t, times the margin (predicted 1) |",
        "|---|---|---|---|",
    ]
    lines += growth(problem, lambda: flow(problem), v, margin)
    ends = [
        ("start", problem.start),
        (f"gradient descent, {STEPS:,} steps", descent(problem)),
        (f"Adam, {STEPS:,} steps", adam(problem)),
    ]
    for decay in DECAYS:
        ends += [(f"AdamW, decay {decay}", adam(problem, decay)), ("its end by theory", adamw_end(problem, decay))]
    ends += [(f"Adam, gate {GATE}", adam(problem, gate=GATE)), ("Adam, gate 0", adam(problem, gate=0.0))]
    lines += [
        "\n| trained by | norm | largest entry | cosine to the direction | largest probability of the word | log10 |",
        "|---" * 6 + "|",
    ]
    for how, w in ends:
        p = problem.push(w).max()
        lines.append(
            f"| {how} | {np.linalg.norm(w):.2f} | {np.abs(w).max():.2f} | {cosine(w, v):.3f} | {p:.1e} | {np.log10(max(p, 1e-320)):.1f} |"
        )
    lines += [
        "\n| with a minimum | predicted norm (Newton) | reached norm (flow) | distance over norm |",
        "|---|---|---|---|",
    ]
    for decay in DECAYS:
        lines.append(bounded(f"descent with decay {decay}", problem, decay))
    centred = Lone(problem.h - problem.h.mean(0), problem.log_c, problem.start)
    lines.append(bounded("states without their mean", centred, 0.0))
    lines.append(gauge(problem))
    lines.append(gated(problem, v))
    return [*lines, ""]


def bounded(how: str, problem: Lone, decay: float) -> str:
    wanted = minimum(problem, decay)
    *_, (_, w) = (one for one, _ in zip(flow(problem, decay=decay), range(60_000), strict=False))
    size = np.linalg.norm(wanted)
    return f"| {how} | {size:.3f} | {np.linalg.norm(w):.3f} | {np.linalg.norm(w - wanted) / size:.1e} |"


def gauge(problem: Lone) -> str:
    """All logits less those of a mean row: the path of the row is shifted by that mean row, and the loss is the same."""
    mean = np.random.default_rng(0).standard_normal(problem.h.shape[1])
    moved = Lone(problem.h, problem.log_c - problem.h @ mean, problem.start - mean)
    one, other = descent(problem, 500), descent(moved, 500)
    off = np.linalg.norm(one - mean - other) / np.linalg.norm(one)
    return f"\nHead without its mean row (any common row): the path is the same but for that row, to {off:.0e} of its length."


def gated(problem: Lone, v: Array) -> str:
    """Under a gate g the flow is the same at the time g t."""

    def at(end: float, gate: float) -> Array:
        *_, (_, w) = flow(problem, end, gate=gate)
        return w

    plain, held = at(1e8, 1.0), at(1e8 / GATE, GATE)
    return f"\nGate {GATE} on gradient flow: after 1e8 / gate its norm is {np.linalg.norm(held):.3f}, as {np.linalg.norm(plain):.3f} without after 1e8."


def main() -> None:
    lines = ["# The row of a word that never occurs\n", *(line for name in SUBJECTS for line in subject(name))]
    write_text(RESULTS / "lone_word.md", "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
