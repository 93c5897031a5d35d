"""Does the partition function care which way one looks? The isotropy I(W) of Arora, Mu & Viswanath, and Bis et al."""

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from uncone.errors import InputError
from uncone.measure.isotropic import marchenko_pastur
from uncone.measure.reading import reading
from uncone.memory import uninitialised, usable
from uncone.moments import Moments
from uncone.records import Measurement
from uncone.records.wording import counted
from uncone.rows import GRID, Rows, as_rows
from uncone.threads import alone, share

Tensor = torch.Tensor
SHORT_ROWS = 0.5
"""Below this mean norm every exponent is small, and I(W) is near 1 whatever the rows look like."""
PIECE = 256
"""Rows multiplied at once: enough to keep a core busy, few enough for its cache."""
CHOICES = 8
"""Where eigenvalues coincide: how many other bases of their eigenvectors are tried."""
_TIED = 32.0
"""Gaps between eigenvalues that coincide, in roundings of the largest: those of planted ties came up to 18, Gaussian rows have 200 and more."""
_SPREAD = 1e-4  # of ln I(W): what float32 sums and the digits shown leave
_SAFE_EXPONENT = 60.0  # exp(60) times a chunk of rows is far inside float32, and 1 / exp(60) is no denormal


def partition_isotropy(
    rows: Any,
    moments: Moments | None = None,
    *,
    device: str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> Measurement:
    """I(W) = min Z(c) / max Z(c), Z(c) = sum_i exp(c.w_i), c over the eigenvectors of W'W (Mu & Viswanath 2018, eq. 6).

    An eigenvector has no sign, and Z(c) differs from Z(-c): published values depend on the one a LAPACK driver happens
    to return. `value` takes both signs of every eigenvector, and is unique where no two eigenvalues coincide. In `details`,
    `one_sign` takes the sign with c.mean >= 0, and [`low`, `high`] is the interval of I(W) over all 2^D choices of signs.

    Where eigenvalues coincide within rounding, any basis of their eigenvectors will do, and `value` is of the one that LAPACK
    returned. Eight others, seeded, are then tried, the first with an axis along the mean. Where I(W) differs among them a
    warning says so, and `details` has `tied`, the number of such eigenvectors, and the least and greatest I(W) found,
    `tied_low` and `tied_high`. The rows are read again for that.

    I(W) depends on the scale of the rows: at mean norm |w|, a drifted cloud has about exp(-2 |mean|). Compare only
    matrices of like norms. Sums are taken as logarithms where float32 would overflow.

    Args:
        rows: Rows, or a tensor or array (N, D). Read once (twice without `moments`), and again where eigenvalues coincide.
        moments: the moments of the same rows, with second-order sums; computed when not given.
        device: where the products are computed.
        progress: called with the number of rows done.

    Returns:
        A value in (0, 1]; higher is better; the reference is a Gaussian isotropic cloud with the same mean square norm.

    Raises:
        InputError: rows that are not finite, or moments of other rows or under weights. UndefinedMeasure: no rows.
    """
    usable(device)
    rows = as_rows(rows)
    m = Moments.of(rows, unit_first=False, device=device) if moments is None else moments
    if m.n != rows.shape[0] or m.weight != m.n:
        raise InputError(
            f"expected unweighted moments of the same {counted(rows.shape[0], 'row')}, got moments of {counted(m.n, 'row')} "
            f"of weight {m.weight:g}: sum these rows"
        )
    values, directions = m.eigen()
    plus, minus = log_partition(rows, directions, longest=m.norm_max, device=device, progress=progress)
    along = alone(lambda: m.mean() @ directions)
    tied, ambiguity = _ambiguity(rows, m, tied_runs(values, _rounding(m, values, along)), plus, minus, device)
    low, high = sign_interval(plus, minus)
    toward = (along >= 0).cpu()
    one = torch.where(toward, plus, minus)
    logarithm = float(torch.minimum(plus, minus).min() - torch.maximum(plus, minus).max())
    value = math.exp(logarithm)
    return reading(
        "partition_isotropy", value, m,
        range=(0.0, 1.0), better="higher", reference=_isotropic(m), centered=False,
        details={"one_sign": math.exp(float(one.min() - one.max())), "low": low, "high": high, **tied},
        warnings=(*_warnings(m), *ambiguity, *((f"too small for a float: its natural logarithm is {logarithm:.6g}",) if value == 0 else ())),
        definition=(
            "min over max of Z(c) = sum exp(c.w), c over both signs of the eigenvectors of W'W (Mu & Viswanath 2018); "
            f"not scale-free: read at mean norm {m.mean_norm():.3g}"
        ),
    )  # fmt: skip


def gaussian_isotropy(m: Moments) -> Measurement:
    """I(W) over both signs if the rows were Gaussian: exp(min g - max g), g(c) = c.mean + c'Cc / 2. Needs no second pass.

    Exact for Gaussian rows; heavy tails and outlying rows make it differ from `partition_isotropy`. It has the same
    dependence on scale. Where eigenvalues coincide within rounding, one of their eigenvectors is taken along the mean.

    Returns:
        A value in (0, 1]; higher is better.

    Raises:
        UndefinedMeasure: no rows.
    """
    linear, values = m.mean_along().clone(), m.spectrum(centered=False)
    for first, stop in tied_runs(values, _rounding(m, values, linear)):
        linear[first] = linear[first:stop].norm()
        linear[first + 1 : stop] = 0.0
    n = (
        m.effective_n
    )  # along its own eigenvectors, the second moment is the covariance (1 - 1/n) plus the mean's square
    quadratic = 0.5 * (values - linear.square()).clamp_min(0.0) * (n / max(n - 1, 1))
    value = math.exp(float((quadratic - linear).min() - (quadratic + linear).max()))
    return reading(
        "gaussian_isotropy", value, m,
        range=(0.0, 1.0), better="higher", reference=_isotropic(m), centered=False, warnings=_warnings(m),
        definition=f"I(W) of a Gaussian with the rows' mean and covariance; not scale-free: read at mean norm {m.mean_norm():.3g}",
    )  # fmt: skip


def log_partition(
    rows: Rows,
    directions: Tensor,
    *,
    longest: float,
    device: str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """ln Z(c) and ln Z(-c) for every column c of `directions` (D, K), float64 (K,) on the CPU.

    `longest` bounds |c.w|: where exp cannot leave float32 the sums are plain, else float64 and log-sum-exp. Rows are worked on
    in pieces, each on one thread from product to sums, while a core's cache still holds it.
    """
    plain = longest <= _SAFE_EXPONENT
    dtype = rows.widened if plain else torch.float64
    c, k = directions.to(device, dtype), directions.shape[1]
    size = PIECE if torch.device(device).type == "cpu" else GRID
    free = deque[Tensor]()

    def sums_of(x: Tensor) -> Tensor:
        try:
            buffer = free.popleft()
        except IndexError:  # as many as there are workers
            buffer = uninitialised((min(size, rows.shape[0]), k), dtype, device)
        z = torch.mm(x.to(device, dtype), c, out=buffer[: len(x)])
        sums = _plain_sums(z) if plain else _log_sums(z)
        free.append(buffer)
        return sums.cpu()

    total: Tensor | None = None
    done = 0
    for block in rows.blocks():
        for sums in share(partial(sums_of, x) for x in torch.split(block, size)):
            total = sums if total is None else total.add_(sums) if plain else torch.logaddexp(total, sums)
        done += len(block)
        del block, sums  # lets the reader use its buffer again
        if progress is not None:
            progress(done)
    assert total is not None
    plus, minus = total.log_() if plain else total
    return plus, minus


def _rounding(m: Moments, values: Tensor, along: Tensor) -> float:
    """How far apart rounding leaves eigenvalues that coincide; `along` is the mean in their eigenvectors.

    Products are summed about the mean, so that the largest eigenvalue counts without the mean's share in it. What parts two eigenvalues
    is the error of one entry; that of the whole product, `rounding`, is sqrt(D) times as large.
    """
    centered = max(float(values[0] - along[0].square()), float(values[1]) if m.d > 1 else 0.0)
    of_products = min(m.epsilon * centered, m.rounding / m.weight / math.sqrt(m.d))
    return _TIED * max(of_products, torch.finfo(torch.float64).eps * float(values[0]))


def tied_runs(values: Tensor, rounding: float) -> list[tuple[int, int]]:
    """The runs (first, stop) of two or more eigenvalues (D,), largest first, that coincide within `rounding`.

    Those that are 0 within it are left out: along their eigenvectors all c.w are 0.
    """
    apart = (values[:-1] - values[1:] > rounding) | (values[1:] <= rounding)
    edges = [0, *((apart.nonzero().flatten() + 1).tolist()), len(values)]
    return [(first, stop) for first, stop in pairwise(edges) if stop - first > 1]


def _ambiguity(
    rows: Rows, m: Moments, runs: list[tuple[int, int]], plus: Tensor, minus: Tensor, device: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The details and the warning of I(W) over other eigenvectors of the eigenvalues that coincide; none where it is the same."""
    size = sum(stop - first for first, stop in runs)
    if size == 0:
        return {}, ()
    alone = torch.ones(m.d, dtype=torch.bool)
    for first, stop in runs:
        alone[first:stop] = False
    others = [torch.minimum(plus, minus)[alone], torch.maximum(plus, minus)[alone]]
    found = [float(torch.maximum(plus, minus).max() - torch.minimum(plus, minus).min())]
    at_once = max(1, m.d // size)
    for start in range(0, CHOICES, at_once):
        turns = range(start, min(start + at_once, CHOICES))
        bases = torch.cat([_other_basis(m, runs, turn) for turn in turns], dim=1)
        both = log_partition(rows, bases, longest=m.norm_max, device=device)
        for ends in zip(*(torch.split(one, size) for one in both), strict=True):
            small, large = (
                torch.cat([others[0], torch.minimum(*ends)]),
                torch.cat([others[1], torch.maximum(*ends)]),
            )
            found.append(float(large.max() - small.min()))
    low, high = math.exp(-max(found)), math.exp(-min(found))
    if max(found) - min(found) <= _SPREAD:
        return {}, ()
    return {"tied": size, "tied_low": low, "tied_high": high}, (
        f"{size} eigenvalues coincide within rounding, so that their eigenvectors are one choice of many and I(W) is not unique: "
        f"over {CHOICES + 1} choices it lies from {low:.3g} to {high:.3g}",
    )


def _other_basis(m: Moments, runs: list[tuple[int, int]], turn: int) -> Tensor:
    """Other orthonormal eigenvectors for each run, (D, K), at random; in turn 0 one of each run lies along the mean."""
    generator, found = torch.Generator().manual_seed(turn), []
    for first, stop in runs:
        basis = m.directions()[:, first:stop]
        start = torch.randn(stop - first, stop - first, generator=generator, dtype=torch.float64).to(basis)
        if turn == 0:
            start[:, 0] = m.mean() @ basis
        found.append(basis @ torch.linalg.qr(start)[0])
    return torch.cat(found, dim=1)


def _plain_sums(z: Tensor) -> Tensor:
    """Sums of exp(z) and exp(-z) by column of z (n, K), where none can overflow, float64 (2, K); z is overwritten."""
    plus = z.exp_().sum(0)
    return torch.stack([plus, z.reciprocal_().sum(0)]).double()


def _log_sums(z: Tensor) -> Tensor:
    """Their logarithms."""
    return torch.stack([torch.logsumexp(z, 0), torch.logsumexp(z.neg_(), 0)])


def sign_interval(plus: Tensor, minus: Tensor) -> tuple[float, float]:
    """The least and greatest min / max that one choice of `plus[k]` or `minus[k]` for every k can give (logarithms in)."""
    small, large = torch.minimum(plus, minus), torch.maximum(plus, minus)
    return math.exp(-_widest(small, large)), math.exp(-_narrowest(small, large))


def _widest(small: Tensor, large: Tensor) -> float:
    """The greatest spread: the least of the small against the greatest of the large, which must be two different pairs."""
    if len(small) == 1:
        return 0.0
    i, j = int(small.argmin()), int(large.argmax())
    if i != j:
        return float(large[j] - small[i])
    others = torch.arange(len(small)) != i
    return max(float(large[others].max() - small[i]), float(large[i] - small[others].min()))


def _narrowest(small: Tensor, large: Tensor) -> float:
    """The least spread: the smallest window over the sorted values that holds one of each pair, in O(D log D)."""
    d = len(small)
    ordered, order = torch.cat([small, large]).sort()
    values, pairs = ordered.tolist(), (order % d).tolist()
    held = [0] * d
    missing, first, best = d, 0, math.inf
    for last, pair in enumerate(pairs):
        missing -= held[pair] == 0
        held[pair] += 1
        while missing == 0:
            best = min(best, values[last] - values[first])
            held[pairs[first]] -= 1
            missing += held[pairs[first]] == 0
            first += 1
    return best


def _isotropic(m: Moments) -> float:
    """I(W) over both signs of a Gaussian isotropic cloud with the same N, D and mean square norm.

    The exponents are half the Marchenko-Pastur edges; along each edge direction the mean of N rows is off by
    sigma sqrt(2 / (pi N)) on average, and both signs count it twice.
    """
    variance = m.norm_square_sum / m.weight / m.d
    spectrum = marchenko_pastur(m.effective_n, m.d) * variance
    noise = 2 * math.sqrt(2 * variance / (math.pi * m.effective_n))
    return math.exp(0.5 * float(spectrum[-1] - spectrum[0]) - noise)


def _warnings(m: Moments) -> tuple[str, ...]:
    if m.mean_norm() >= SHORT_ROWS:
        return ()
    return (
        f"tiny norms: at mean norm {m.mean_norm():.2g} every exponent is small, and I(W) is near 1 whatever the rows look like",
    )
