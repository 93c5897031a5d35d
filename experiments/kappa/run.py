"""Does kappa foretell which tokens Adam predicts too seldom? One logit's balance, and a softmax of biases that trains.

    nice python experiments/kappa/run.py

Writes results/kappa.md, in less than two minutes on two cores.
"""

import math
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.signal import lfilter

import uncone
from uncone.training.optimisers.table_adam import KINDS

RESULTS = Path(__file__).parent / "results" / "kappa.md"
KAPPAS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0)
BETA2S, BETA1S, RANDOM_STEPS = (0.95, 0.99, 0.999), (0.0, 0.9), 1_000_000
V, TARGETS, STEPS, KEPT, RATE, EXPONENT = 200, 16, 24_000, 12_000, 2e-3, 1.0


def kar(kappa: float) -> float:
    """Predicted over true probability, for a target at even distances."""
    return kappa / 2 / math.expm1(kappa / 2)


def discrete(period: int, beta1: float, beta2: float) -> float:
    """The same for any beta2, and with momentum: the geometric sums of a cycle, without the push's own square."""
    x = beta2**-0.5
    pull = (1 - beta1) / (1 - beta1**period) * (1 - (beta1 * x) ** period) / (1 - beta1 * x)
    return period * pull * (x - 1) / (x**period - 1)


def balance(comes: np.ndarray, beta1: float, beta2: float, skip: int, drift: float = 0.0) -> float:
    """The p, in units of a target's share of a step, at which the mean step of Adam is `drift`, in learning rates.

    `comes` (steps,) is whether the token is a target. This is the limit of small learning rates, with everything in it.
    """

    def mean_step(log_p: float) -> float:
        g = math.exp(log_p) - comes
        m = g if beta1 == 0 else lfilter([1 - beta1], [1, -beta1], g)
        v = lfilter([1 - beta2], [1, -beta2], g * g)
        return float((m[skip:] / np.sqrt(v[skip:])).mean()) + drift

    return math.exp(brentq(mean_step, math.log(1e-30), math.log(0.9), xtol=1e-4))


def of_one_logit() -> list[str]:
    lines = ["| beta2 | beta1 | kappa | even: balance | formula | with momentum | at random: balance | 1 - kappa / 2 |"]
    lines.append("|" + "---|" * 8)
    random = np.random.default_rng(0)
    for beta2 in BETA2S:
        for kappa in KAPPAS:
            period = max(2, round(kappa / (1 - beta2)))
            exact = (1 - beta2) * period
            cycles = 2 + math.ceil(40 * max(1.0, 1 / exact))
            even = np.arange(cycles * period) % period == 0
            chance = random.random(RANDOM_STEPS) < 1 / period
            for beta1 in BETA1S:
                cells = [balance(even, beta1, beta2, (cycles - 1) * period) * period, kar(exact)]
                cells += [discrete(period, beta1, beta2), balance(chance, beta1, beta2, 10_000) * period]
                cells.append(max(0.0, 1 - exact / 2))
                lines.append(f"| {beta2} | {beta1} | {exact:.3g} | " + " | ".join(f"{x:.3f}" for x in cells) + " |")
    return lines


def of_a_softmax(kind: str, beta1: float, beta2: float) -> tuple[np.ndarray, float, float]:
    """Predicted over true probability of every token, its logs averaged over the last steps; the rise of all logits a
    step, in learning rates, which changes no probability; and the divergence in nats."""
    random = torch.Generator().manual_seed(0)
    true = 1 / torch.arange(1.0, V + 1, dtype=torch.float64) ** EXPONENT
    true /= true.sum()
    logits = true.log()[:, None].clone().requires_grad_()
    optimizer = uncone.TableAdam([logits], kind, lr=RATE, betas=(beta1, beta2), eps=1e-12)
    drawn = torch.multinomial(true, STEPS * TARGETS, replacement=True, generator=random).view(STEPS, TARGETS)
    logs, before = torch.zeros(V, dtype=torch.float64), 0.0
    for step in range(STEPS):
        p = torch.softmax(logits.detach()[:, 0], 0)
        if step >= STEPS - KEPT:
            before = before or float(logits.detach().mean())
            logs += p.log() / KEPT
        logits.grad = (p - torch.bincount(drawn[step], minlength=V) / TARGETS)[:, None]
        optimizer.step()
    ratio, drift = logs - true.log(), (float(logits.detach().mean()) - before) / KEPT / RATE
    return ratio.exp().numpy(), drift, float(-(true * ratio).sum())


def of_softmaxes() -> list[str]:
    true = 1 / np.arange(1, V + 1) ** EXPONENT
    true /= true.sum()
    groups = {"1-10": slice(0, 10), "11-50": slice(10, 50), "51-100": slice(50, 100), "151-200": slice(150, 200)}
    lines = ["| second moment | beta1 | beta2 | " + " | ".join(f"ranks {name}" for name in groups)]
    lines[0] += " | drift of all logits | divergence |"
    lines.append("|" + "---|" * (5 + len(groups)))
    arrivals = np.random.default_rng(1).random(RANDOM_STEPS)
    for beta2 in (0.95, 0.999):
        q = {name: float(np.median(true[at])) for name, at in groups.items()}
        kappas = [(1 - beta2) / (one * TARGETS) for one in q.values()]
        cells = [f"kappa {k:.2g}: {kar(k):.2f}, {max(0.0, 1 - k / 2):.2f}" for k in kappas]
        lines.append(f"| foretold: even, at random | | {beta2} | " + " | ".join(cells) + " | 0 | |")
        for kind in KINDS:
            for beta1 in BETA1S if kind == "row" else (0.0,):
                ratio, drift, divergence = of_a_softmax(kind, beta1, beta2)
                cells = [f"{np.exp(np.log(ratio[at]).mean()):.2f}" for at in groups.values()]
                lines.append(
                    f"| {kind} | {beta1} | {beta2} | " + " | ".join(cells) + f" | {drift:.4f} | {divergence:.4f} |"
                )
                print(lines[-1], flush=True)
                if kind == "entry":
                    rare = [one * TARGETS for one in q.values() if one * TARGETS < 0.15]
                    with_drift = [balance(arrivals < one, 0.0, beta2, 10_000, drift) / one for one in rare]
                    cells = [""] * (len(q) - len(rare)) + [f"{one:.2f}" for one in with_drift]
                    name = "balance at random, with that drift"
                    lines.append(f"| {name} | 0.0 | {beta2} | " + " | ".join(cells) + f" | {drift:.4f} | |")
                    print(lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    torch.set_num_threads(1)
    text = ["# What kappa foretells", "", "`python experiments/kappa/run.py`", ""]
    text += [
        "## One logit",
        "",
        "Predicted over true probability, at a learning rate that goes to 0.",
        "",
        *of_one_logit(),
    ]
    text += ["", f"## A softmax of {V} biases, {TARGETS} targets a step, Zipfian, rate {RATE:g}, one seed", ""]
    text += [
        f"Predicted over true probability (geometric means over tokens and the last {KEPT:,} of {STEPS:,} steps).",
        "",
    ]
    text += of_softmaxes()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(text) + "\n")
