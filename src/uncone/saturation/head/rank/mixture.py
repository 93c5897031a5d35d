"""A mixture of softmaxes against one wider softmax with as many parameters, both trained on frozen states.

Yang et al. 2018: p(v | x) = sum_k pi_k softmax(W h_k)_v with h_k = tanh(W_k x) and pi = softmax(u_k . x). Its logarithm
is not of low rank. The rival softmax(W' tanh(M x)) has D' > D columns, V D' + D' D numbers. It computes less,
because a mixture takes K products with the head: the comparison leaves that out.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count as count_up

import torch

from uncone.errors import InputError
from uncone.roles import Progress
from uncone.rows import Array
from uncone.saturation.head.rank.record import Remedy
from uncone.saturation.head.rank.truncation import Tensor, Text
from uncone.statistics.blocks import block_means
from uncone.tensors import share

SEEDS, STEPS, EXPERTS = (0, 1, 2), 300, 3
RATES = (5e-4, 2e-3)
"""Rates of Adam: each head takes the better rate, by the first seed on a held-out quarter of the blocks."""
_BATCH, _INNER, _NOISE = 512, 0.5, 0.02
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # Student's t for 95%, 1 to 9 degrees of freedom


class Mixture:
    """K softmaxes of one head, at first nearly the full head; a single softmax has no weight to learn."""

    def __init__(self, text: Text, head: Tensor, experts: int, width: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        (v, d), self._text = head.shape, text
        self._size = float(text.x.square().mean().sqrt().clamp_min(1e-30))
        inner = torch.randn(experts, width, d, generator=random) * (_INNER / math.sqrt(d))
        inner[:, :d] *= _NOISE
        inner[:, :d] += _INNER * torch.eye(d)
        rows = torch.zeros(v, width)
        rows[:, :d] = head.float() * (self._size / _INNER)
        weights = torch.randn(experts, d, generator=random) * (_NOISE / math.sqrt(d))
        self.parameters = [rows, inner, weights] if experts > 1 else [rows, inner]

    def losses(self, rows: Tensor) -> Tensor:
        text, (head, inner, *weights) = self._text, self.parameters
        x = text.x[rows] / self._size
        z = torch.tanh(torch.einsum("kwd,nd->nkw", inner, x)) @ head.T
        if text.bias is not None:
            z = z + text.bias
        if text.cap is not None:
            z = text.cap * torch.tanh(z / text.cap)
        own = z.gather(2, text.labels[rows, None, None].expand(-1, len(inner), 1))[:, :, 0] - torch.logsumexp(z, 2)
        for of in weights:
            own = own + torch.log_softmax(x @ of.T, 1)
        return -torch.logsumexp(own, 1)

    def train(self, rows: Tensor, steps: int, rate: float, seed: int) -> None:
        """With one seed every head draws the same batches of `rows`; the rate falls to 0 by a cosine."""
        random = torch.Generator().manual_seed(seed)
        for one in self.parameters:
            one.requires_grad_(True)
        optimizer = torch.optim.Adam(self.parameters, lr=rate)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            drawn = rows[torch.randint(0, len(rows), (_BATCH,), generator=random)]
            optimizer.zero_grad()
            with torch.enable_grad():
                self.losses(drawn).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            falling.step()

    @torch.no_grad()
    def read(self, rows: Tensor) -> Tensor:
        return torch.cat([self.losses(part).double() for part in torch.split(rows, _BATCH)])


def widths(v: int, d: int, experts: int) -> tuple[int, int, int]:
    """The columns of the wider head, and the parameters of mixture and wider head."""
    mixture = v * d + experts * d * (d + 1)
    width = round(mixture / (v + d))
    return width, mixture, width * (v + d)


def compare(
    text: Text,
    head: Tensor,
    fit: Tensor,
    blocks: Array,
    *,
    experts: int = EXPERTS,
    seeds: Sequence[int] = SEEDS,
    steps: int = STEPS,
    progress: Progress | None = None,
) -> Remedy:
    """Train both on the tokens of `fit` (N,) bool, and read them on the other tokens, in resampled `blocks` (N,)."""
    if experts < 2 or not 3 <= len(seeds) <= len(_T) + 1:
        came = f"got {experts} and {len(seeds)}: 3 of each are usual"
        raise InputError(f"expected at least 2 experts and 3 to 10 seeds, {came}")
    v, d = head.shape
    width, mixed, widened = widths(v, d, experts)
    makers = [partial(Mixture, text, head, experts, d), partial(Mixture, text, head, 1, width)]
    inside, held = torch.nonzero(fit)[:, 0], torch.nonzero(~fit)[:, 0]
    tuned = torch.from_numpy(blocks)[inside] % 4 == 0
    done = count_up(1)

    def run(make: Callable[[int], Mixture], seed: int, rate: float, rows: Tensor, read: Tensor) -> Tensor:
        one = make(seed)
        one.train(rows, steps, rate, seed)
        found = one.read(read)
        if progress is not None:
            progress("training remedies", next(done), len(makers) * (len(RATES) + len(seeds)))
        return found

    # one thread per run: the products of a run are too small to share
    trials = share(
        partial(run, make, seeds[0], rate, inside[~tuned], inside[tuned]) for make in makers for rate in RATES
    )
    best = torch.stack(trials).mean(1).view(len(makers), len(RATES)).argmin(1).tolist()
    chosen = [(make, RATES[place]) for make, place in zip(makers, best, strict=True)]
    runs = share(partial(run, make, seed, rate, inside, held) for make, rate in chosen for seed in seeds)
    mixture, wider = torch.stack(runs[: len(seeds)]), torch.stack(runs[len(seeds) :])
    over = block_means((mixture - wider).numpy(), blocks[(~fit).numpy()])
    variance = over.mean(1).var(ddof=1) / len(seeds) + over.mean(0).var(ddof=1) / over.shape[1]
    middle, half = float(over.mean()), _T[len(seeds) - 2] * math.sqrt(variance)
    first, second = (tuple(one.mean(1).tolist()) for one in (mixture, wider))
    return Remedy(experts, width, mixed, widened, steps, first, second, middle, middle - half, middle + half)
