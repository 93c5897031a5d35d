"""Does the partition function depend on the direction? The isotropy I(W)."""

import math
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np

from uncone.measure.influence import CARRIED, NoIntervalError, on_direction, products
from uncone.measure.projections import by_piece
from uncone.measure.reading import moments_of, reading, rounding_warnings, with_moments
from uncone.measure.spectrum import marchenko_pastur
from uncone.moments import Moments
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement
from uncone.roles import Ticks
from uncone.rows import Array, Rows
from uncone.threads import on_one_thread

SHORT_ROWS = 0.5  # a mean norm, below which I(W) is near 1 whatever the rows look like
PIECE = 512  # rows multiplied at once: enough to keep a core busy, few enough for its cache
CHOICES = 8  # other bases of tied eigenvectors that are tried
_TIED = 32.0  # gaps of equal eigenvalues, in roundings of the largest: planted ties came to 18, Gaussian rows to 200
_NO_SIDE = 8.0  # in roundings of the longest row: so near 0 a mean's part has no sign
_SPREAD = 1e-4  # of ln I(W): what float32 sums and the digits shown leave
_SAFE_EXPONENT = 60.0  # exp(60) times a piece of rows is far inside float32, and 1 / exp(60) is no denormal
Runs = list[tuple[int, int]]
_SCALE = "not scale-free: read at mean norm {norm:.3g}"
_ISOTROPIC = "a Gaussian cloud with the same mean square norm"

PARTITION_ISOTROPY = MeasureDescription(
    "partition_isotropy", range=(0.0, 1.0), better="higher", centered=False,
    says="I(W): whether the partition function is the same in every direction.",
    definition="min over max of Z(c) = sum exp(c.w), c over both signs of the eigenvectors of W'W (Mu & Viswanath 2018); "
    + _SCALE,
    formula="""\
min Z(c) / max Z(c),  Z(c) = sum_i exp(c . x_i)
c over the eigenvectors of X'X, both signs of each""",
    isotropic=_ISOTROPIC,
    reads_badly="matrices of different norms are compared: multiplying all rows by a number changes I(W), and at mean "
    "norm |w| a drifted cloud has about exp(-2 |mu|). Short rows score near 1 whatever they look like. Published "
    "values use the signs that a LAPACK driver happens to return: `details` has `one_sign`, with c . mu >= 0 (the "
    "larger Z where c . mu is rounding), and the interval from `low` to `high` over all 2^D choices. Where eigenvalues "
    "coincide, any basis of their eigenvectors will do: eight others are tried, and a warning, `tied`, `tied_low` and "
    "`tied_high` show the results.",
    source="Mu & Viswanath 2018, eq. 6, after Arora et al. 2016; Bis et al. 2021.",
)  # fmt: skip
GAUSSIAN_ISOTROPY = MeasureDescription(
    "gaussian_isotropy", range=(0.0, 1.0), better="higher", centered=False,
    says="What I(W) would be if the rows were Gaussian, from moments alone.",
    definition="I(W) of a Gaussian with the rows' mean and covariance; " + _SCALE,
    formula="""\
exp(min g - max g),  g(c) = c . mu + c'Cc / 2
c over both signs of the eigenvectors of X'X; where eigenvalues coincide, one points along the mean""",
    isotropic=_ISOTROPIC,
    reads_badly="tails are heavy or a few rows are far out: a difference from `partition_isotropy` shows it. Like "
    "`partition_isotropy`, the value depends on scale.",
    source="`partition_isotropy` of a normal distribution.",
)  # fmt: skip


@on_one_thread
def partition_isotropy(
    rows: Any, moments: Moments | None = None, *, progress: Ticks = None, mask: Any = None
) -> Measurement:
    """`PARTITION_ISOTROPY` of the rows. Sums are taken as logarithms where float32 would overflow.

    `moments` hold second-order sums; other arguments are as for `nearest_neighbours`. Rows are read once (twice without
    `moments`), and again where eigenvalues coincide.
    >>> x = [[2.0, 0.0], [0.0, 1.0]]  # Z is e^2 + 1, e^-2 + 1, e + 1 and e^-1 + 1
    >>> round(partition_isotropy(x), 4)  # (e^-2 + 1) / (e^2 + 1) = e^-2
    0.1353
    """
    rows, m = with_moments(rows, moments, mask, unit_first=False)
    plus, minus = partition_of(rows, m, progress=progress)
    small, large = np.minimum(plus, minus), np.maximum(plus, minus)
    values, directions = m.eigen()
    along = np.zeros(m.d)
    along[: directions.shape[1]] = m.mean() @ directions
    tied, warnings = _ambiguity(rows, m, tied_runs(values, _rounding(m, values, along)), small, large)
    low, high = sign_interval(plus, minus)
    # Where the mean was subtracted, only rounding decides on which side it is.
    has_side = np.abs(along) > _NO_SIDE * m.epsilon * m.norm_max
    one = np.where(has_side, np.where(along > 0, plus, minus), large)
    logarithm = float(small.min() - large.max())
    value = math.exp(logarithm)
    if value == 0:
        warnings += (f"too small for a float: the natural logarithm is {logarithm:.6g}",)
    details = {"one_sign": math.exp(float(one.min() - one.max())), "low": low, "high": high, **tied}

    def influence() -> Array:
        least, most = int(small.argmin()), int(large.argmax())
        on_least = _on_log_sum(m, least, bool(minus[least] < plus[least]), float(small[least]))
        return on_least - _on_log_sum(m, most, bool(minus[most] > plus[most]), float(large[most]))

    rest = {"influence": influence, "logarithm": logarithm}
    return _isotropy(PARTITION_ISOTROPY, value, m, warnings, details=details, **rest)


def gaussian_isotropy(x: Any, *, mask: Any = None) -> Measurement:
    """`GAUSSIAN_ISOTROPY` of `x`, rows or moments.

    >>> x = [[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    >>> round(gaussian_isotropy(x), 4)  # variances 8/3 and 2/3: exp(1/3 - 4/3)
    0.3679
    """
    m = moments_of(x, mask)
    linear, values, n = m.mean_along().copy(), m.spectrum(centered=False), m.effective_n
    unsure = 4 * m.spectral_error(centered=False)
    runs = tied_runs(values, _rounding(m, values, linear))
    for first, stop in runs:
        linear[first] = np.sqrt(np.square(linear[first:stop]).sum())
        linear[first + 1 : stop] = 0.0
        unsure[first:stop] += linear[first]  # more digits may part these eigenvalues, and the mean among them
    # Along its own eigenvectors, the second moment is the covariance (1 - 1/n) plus the mean's square.
    quadratic = 0.5 * np.maximum(values - np.square(linear), 0.0) * (n / max(n - 1, 1))
    least, most = quadratic - linear, quadratic + linear
    value = math.exp(float(least.min() - most.max()))
    error = value * float(unsure[least.argmin()] + unsure[most.argmax()])

    def influence() -> Array:
        at = (int(least.argmin()), int(most.argmax()))
        if any(first <= place < stop for first, stop in runs for place in at):
            raise NoIntervalError("eigenvalues coincide, so that the directions are one choice of many")
        spanned = products(m, centered=False).shape[1]
        if max(at) >= spanned:
            raise NoIntervalError("the rows do not span all dimensions")
        mean = -m.mean_along()[:spanned]
        first, last = (
            _on_exponent(m, mean, place, -side * math.copysign(1.0, mean[place]))
            for place, side in zip(at, (1, -1), strict=True)
        )
        return first - last

    rest = {"influence": influence, "logarithm": float(least.min() - most.max())}
    return _isotropy(GAUSSIAN_ISOTROPY, value, m, rounding_warnings(value, m, error), **rest)


def _on_exponent(m: Moments, mean: Array, place: int, side: float) -> Array:
    """The influences on g(c) = c . mu + c'Cc / 2 along an eigenvector of the second moment, or its opposite; `mean` is
    mu in the eigenvectors."""
    parts = products(m, centered=False)[:, place].astype(np.float64) - mean[place]
    turned = on_direction(m, place, side * mean - mean[place] * mean)  # v_j'Cv_k = -mu_j mu_k
    return np.asarray(side * parts + 0.5 * np.square(parts) + turned)


def _on_log_sum(m: Moments, place: int, is_minus: bool, log_sum: float) -> Array:
    """The influences on ln Z along an eigenvector of the second moment, or its opposite."""
    found, side = products(m, centered=False), -1.0 if is_minus else 1.0
    if place >= found.shape[1]:  # there all terms are 1
        return np.ones(len(found))
    terms = np.exp(side * found[:, place].astype(np.float64) - log_sum + math.log(m.n))
    assert m.drawn is not None
    weights = m.drawn.weights
    total, squares = float(weights @ terms), float(weights @ np.square(terms))
    if not 0 < squares < math.inf:
        raise NoIntervalError("the rows are too long or too short for an interval: scale them")
    if (carried := total**2 / squares) < CARRIED:
        raise NoIntervalError(f"about {carried:.1f} rows carry Z along one direction, and similar rows may be missing")
    pull = side * ((weights * terms).astype(found.dtype) @ found) / total
    return np.asarray(terms + on_direction(m, place, pull))


def partition_of(rows: Rows, m: Moments, *, progress: Ticks = None) -> tuple[Array, Array]:
    """`log_partition` along all D directions; c.w is 0 where few rows leave directions out."""
    directions = m.directions()
    both = log_partition(rows, directions, longest=m.norm_max, progress=progress)
    left = np.full(m.d - directions.shape[1], math.log(rows.shape[0]))
    return np.append(both[0], left), np.append(both[1], left)


def log_partition(rows: Rows, directions: Array, *, longest: float, progress: Ticks = None) -> tuple[Array, Array]:
    """ln Z(c) and ln Z(-c) for every column c of `directions` (D, K), float64 (K,).

    `longest` bounds |c.w|: where exp cannot leave float32 the sums are plain, else float64 and log-sum-exp.
    """
    plain = longest <= _SAFE_EXPONENT
    total = rows.over_parts(
        partial(_partition_sums, directions, plain, progress=None if rows.parts else progress),
        np.add if plain else np.logaddexp,
        progress,
    )
    plus, minus = np.log(total) if plain else total
    return plus, minus


def _partition_sums(directions: Array, plain: bool, rows: Rows, _: int, *, progress: Ticks = None) -> Array:
    """Z(c) and Z(-c), or their logarithms, float64 (2, K)."""
    c = directions.astype(rows.widened if plain else np.float64)

    def sums_of(_: slice, x: Array) -> Array:
        z = x @ c
        if not plain:
            return np.stack([_log_sum_exp(z), _log_sum_exp(np.negative(z, out=z))])
        ones = np.ones(len(z), z.dtype)  # sums over rows are products: a BLAS makes them in one pass
        sums = np.stack([ones @ np.exp(z, out=z), ones @ np.divide(1, z, out=z)])
        return sums.astype(np.float64)

    return np.asarray(reduce(np.add if plain else np.logaddexp, by_piece(rows, PIECE, sums_of, progress)))


def _log_sum_exp(z: Array) -> Array:
    largest, terms = z.max(0), np.empty_like(z)
    np.exp(np.subtract(z, largest, out=terms), out=terms)
    return np.asarray(largest + np.log(terms.sum(0)))


def _rounding(m: Moments, values: Array, along: Array) -> float:
    """How far apart rounding leaves equal eigenvalues; `along` is the mean in their eigenvectors."""
    # Products are summed about the mean, whose share does not count. What parts two eigenvalues is the error of one
    # entry, not that of the whole product, which is sqrt(D) times as large.
    centered = max(float(values[0] - along[0] ** 2), float(values[1]) if m.d > 1 else 0.0)
    of_entry = float(m.rounding.mean() + m.rounding.max() / math.sqrt(m.d))
    of_products = min(m.epsilon * centered, of_entry / m.weight)
    return _TIED * max(of_products, float(np.finfo(np.float64).eps) * float(values[0]))


def tied_runs(values: Array, rounding: float) -> Runs:
    """The runs (first, stop) of falling eigenvalues (D,) that coincide within `rounding`; none of 0, where all c.w are
    0."""
    apart = (values[:-1] - values[1:] > rounding) | (values[1:] <= rounding)
    edges = [0, *(np.flatnonzero(apart) + 1).tolist(), len(values)]
    return [(first, stop) for first, stop in pairwise(edges) if stop - first > 1]


def _ambiguity(
    rows: Rows, m: Moments, runs: Runs, small: Array, large: Array
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The details and the warning of I(W) over other eigenvectors of tied eigenvalues; none where it is the same."""
    tied = np.zeros(m.d, np.bool_)
    for first, stop in runs:
        tied[first:stop] = True
    size = int(tied.sum())
    if size == 0:
        return {}, ()
    spreads = [float(large.max() - small.min())]
    at_once = max(1, m.d // size)
    for start in range(0, CHOICES, at_once):
        turns = range(start, min(start + at_once, CHOICES))
        bases = np.concatenate([_other_basis(m, runs, turn) for turn in turns], axis=1)
        both = np.stack(log_partition(rows, bases, longest=m.norm_max))
        for other in np.split(both, len(turns), axis=1):
            least = min(other.min(), small[~tied].min(initial=math.inf))
            spreads.append(float(max(other.max(), large[~tied].max(initial=-math.inf)) - least))
    if max(spreads) - min(spreads) <= _SPREAD:
        return {}, ()
    low, high = math.exp(-max(spreads)), math.exp(-min(spreads))
    coincide = f"{size} eigenvalues coincide within rounding, so that their eigenvectors are one choice of many"
    words = f"{coincide} and I(W) is not unique: over {CHOICES + 1} choices it ranges from {low:.3g} to {high:.3g}"
    return {"tied": size, "tied_low": low, "tied_high": high}, (words,)


def _other_basis(m: Moments, runs: Runs, turn: int) -> Array:
    """Random eigenvectors for each run, (D, K); in turn 0 one of each run points along the mean."""
    generator, bases = np.random.default_rng(turn), []
    for first, stop in runs:
        basis = m.directions()[:, first:stop]
        start = generator.standard_normal((stop - first, stop - first))
        if turn == 0:
            start[:, 0] = m.mean() @ basis
        bases.append(basis @ np.linalg.qr(start)[0])
    return np.concatenate(bases, axis=1)


def sign_interval(plus: Array, minus: Array) -> tuple[float, float]:
    """The least and greatest min / max over all choices of `plus[k]` or `minus[k]`, which are logarithms."""
    small, large = np.minimum(plus, minus), np.maximum(plus, minus)
    d = len(small)
    if d == 1:
        return 1.0, 1.0
    # The least against the greatest, from two different pairs.
    i, j = np.argsort(small)[:2], np.argsort(-large)[:2]
    widest = float((large[j] - small[i][:, None])[i[:, None] != j].max())
    # The smallest window over the sorted values with one of each pair.
    both = np.concatenate([small, large])
    order = np.argsort(both)
    values, pairs = both[order].tolist(), (order % d).tolist()
    held, missing, first, narrowest = [0] * d, d, 0, math.inf
    for last, pair in enumerate(pairs):
        missing -= held[pair] == 0
        held[pair] += 1
        while missing == 0:
            narrowest = min(narrowest, values[last] - values[first])
            held[pairs[first]] -= 1
            missing += held[pairs[first]] == 0
            first += 1
    return math.exp(-widest), math.exp(-narrowest)


def _isotropy(
    what: MeasureDescription, value: float, m: Moments, warnings: tuple[str, ...], **rest: Any
) -> Measurement:
    """The reference is for a Gaussian isotropic cloud with the same N, D and mean square norm: from half the
    Marchenko-Pastur edges, and twice the mean of N rows, which is off by sigma sqrt(2 / (pi N)) along each."""
    variance, norm = m.norm_square_sum / m.weight / m.d, m.mean_norm()
    spectrum = marchenko_pastur(m.effective_n, m.d) * variance
    noise = 2 * math.sqrt(2 * variance / (math.pi * m.effective_n))
    reference = math.exp(0.5 * float(spectrum[-1] - spectrum[0]) - noise)
    if norm < SHORT_ROWS:
        tiny = f"tiny norms: at mean norm {norm:.2g} exponents are small"
        warnings = (f"{tiny}, and I(W) reflects the rows' lengths more than their directions", *warnings)
    return reading(what, value, m, reference=reference, asked={"norm": norm}, warnings=warnings, **rest)
