"""How is the variance spread over directions? Ranks, entropies and shares of the eigenvalues."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from uncone.arguments import finite_number, flag, whole_number
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.influence import leading_squares, products
from uncone.measure.reading import moments_of, reading, rounding_warnings, spectral_warnings
from uncone.moments import Moments
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement
from uncone.records.text import count, plural
from uncone.rows import Array

_DEVIATIONS = 8.0  # of 30 orders of 18 clouds under three BLAS kernels the worst error was 6.4 deviations
Function = Callable[[Array], float]
_ISOTROPIC = "the same function of Marchenko-Pastur eigenvalues"

EFFECTIVE_RANK = MeasureDescription(
    "effective_rank", range=(1.0, "min(N, D)"), better="higher", centered=True,
    says="How many dimensions the rows use at all.",
    definition="exp of the entropy of the normalised singular values (Roy & Vetterli 2007), {rows}",
    formula="exp(-sum p ln p),  p = s / sum s, over the singular values", isotropic=_ISOTROPIC,
    reads_badly="noise fills the small directions: effective rank weighs them far more than `participation_ratio` "
    "does. Some "
    'papers also call exp(-sum p ln p) over p = s^2 / sum s^2 "effective rank". That number is the exponential of '
    "`singular_entropy`, and smaller, because squares favour the large directions.",
    source="Roy & Vetterli 2007, who use the matrix as it is.",
    variants=(("effective_rank_raw", "`centered=False`: the paper's reading of the matrix as it is"),),
)  # fmt: skip
RANKME = MeasureDescription(
    "rankme", range=("1", "min(N, D), both apart from the terms of 1e-7"), better="higher", centered=False,
    says="The effective rank as RankMe defines it, for comparison with published values.",
    definition="exp of the entropy of the normalised singular values plus 1e-7 (Garrido et al. 2023); depends on N, {rows}",
    formula="exp(-sum p ln p),  p = s / sum s + 1e-7, over K = min(N, D) terms", isotropic=_ISOTROPIC,
    reads_badly="N differs: RankMe grows with N, and the paper uses 25,600 rows. With the terms of 1e-7 the p sum to "
    "more than 1, so that 4,096 equal singular values give 4,108. The `range` of a reading includes these terms.",
    source="Garrido et al. 2023, eq. 3.",
)  # fmt: skip
STABLE_RANK = MeasureDescription(
    "stable_rank", range=(1.0, "min(N, D)"), better="higher", centered=False,
    says="Whether one direction dominates the matrix: near 1 if it does.",
    definition="sum of squared singular values divided by the largest, {rows}",
    formula="|X|_F^2 / s_1^2 = sum s^2 / s_1^2", isotropic=_ISOTROPIC,
    reads_badly="it is taken as a count of dimensions, because it looks only at the first dimension. Raw, drift alone "
    "brings it near 1.",
    source="The usual definition of numerical linear algebra.", variants=(("stable_rank_centered", "`centered=True`"),),
)  # fmt: skip
ANISOTROPY = MeasureDescription(
    "anisotropy", range=(0.0, "1/k"), better="lower", centered=True,
    says="The share of one direction in the sum of squares.",
    definition="squared singular value {k} divided by the sum of all (Razzhigaev et al. 2024), {rows}",
    formula="s_k^2 / sum s^2,  k = 1 unless given", isotropic="about 1/D: " + _ISOTROPIC,
    reads_badly="the raw value is taken as a statement about spread: in a drifted cloud the first raw direction is the "
    "mean. Lower is better for k = 1.",
    source="Razzhigaev et al. 2024 (k = 1, centred).",
    variants=(("anisotropy_1", "k = 1, and so on"), ("anisotropy_1_raw", "`centered=False`")),
)  # fmt: skip
SINGULAR_ENTROPY = MeasureDescription(
    "singular_entropy", range=(0.0, "ln D"), better="higher", centered=True,
    says="How evenly the sum of squares is spread over directions, in nats.",
    definition="entropy in nats of the normalised squared singular values, {rows}",
    formula="-sum p ln p,  p = s^2 / sum s^2, over the squared singular values", isotropic=_ISOTROPIC,
    reads_badly="it is confused with `effective_rank`, which uses the singular values themselves. It is a logarithm, "
    "so small differences in it are large differences in dimensions.",
    source="The usual definition.", variants=(("singular_entropy_raw", "`centered=False`"),),
)  # fmt: skip
CONDITION_NUMBER = MeasureDescription(
    "condition_number", range=(1.0, None), better="lower", centered=False,
    says="How much longer the matrix makes one direction than another.",
    definition="largest singular value divided by the smallest, {rows}",
    formula="s_1 / s_D", isotropic=_ISOTROPIC,
    reads_badly="the smallest direction is noise or rounding. The value is undefined where the rows do not span all "
    "dimensions to the precision of their products.",
    source="The usual definition.", variants=(("condition_number_centered", "`centered=True`"),),
)  # fmt: skip


def effective_rank(x: Any, *, centered: bool = True, mask: Any = None) -> Measurement:
    """`EFFECTIVE_RANK` of `x`, rows or moments; undefined for rows that are all equal (all zero when raw).
    >>> round(effective_rank([[3.0, 0.0], [0.0, 1.0]], centered=False), 4)  # p = 3/4 and 1/4
    1.7548
    """
    m = moments_of(x, mask)
    highest = float(min(m.n, m.d))

    def rank(values: Array) -> float:
        return math.exp(_entropy(np.sqrt(values)))

    def gradient(values: Array) -> Array:
        return rank(values) * _entropy_gradient(values, 0.5)

    return _spectral(EFFECTIVE_RANK, rank, m, centered, gradient=gradient, highest=highest)


def rankme(x: Any, *, mask: Any = None) -> Measurement:
    """`RANKME` of `x`, rows or moments; undefined for rows that are all zero.
    >>> round(rankme(np.eye(2)), 4)  # p = 1/2 and 1/2
    2.0
    """
    m = moments_of(x, mask)
    terms = min(m.n, m.d)

    def rank(values: Array) -> float:
        s = np.sqrt(values[:terms])
        p = s / s.sum() + 1e-7
        return math.exp(float(-(p * np.log(p)).sum()))

    lowest, highest = rank(np.eye(1, terms)[0]), rank(np.ones(terms))

    def gradient(values: Array) -> Array:
        return rank(values) * _entropy_gradient(values, 0.5, added=1e-7)

    return _spectral(RANKME, rank, m, False, gradient=gradient, lowest=lowest, highest=highest)


def stable_rank(x: Any, *, centered: bool = False, mask: Any = None) -> Measurement:
    """`STABLE_RANK` of `x`, rows or moments; undefined for rows that are all zero (all equal when centred).
    >>> round(stable_rank([[3.0, 0.0], [0.0, 1.0]]), 4)  # (9 + 1) / 9
    1.1111
    """
    m = moments_of(x, mask)
    ends: Any = {"leading": 1, "highest": float(min(m.n, m.d))}

    def rank(values: Array) -> float:
        return float(values.sum() / values[0])

    def gradient(values: Array) -> Array:
        return np.asarray((1 - rank(values) * np.eye(1, len(values))[0]) / values[0])

    return _spectral(STABLE_RANK, rank, m, centered, gradient=gradient, **ends)


def anisotropy(x: Any, k: int = 1, *, centered: bool = True, mask: Any = None) -> Measurement:
    """`ANISOTROPY` of `x`, rows or moments, along direction k by falling share; undefined as `effective_rank`.
    >>> round(anisotropy([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 12)  # 18 / (18 + 2)
    0.9
    """
    m = moments_of(x, mask)
    if not 1 <= whole_number(k, "k") <= m.d:
        raise InputError(f"expected k from 1 to D = {m.d}, got {k}: directions are counted from the largest")
    ends: Any = {"leading": k, "highest": 1 / k}

    def share(values: Array) -> float:
        return float(values[k - 1] / values.sum())

    def gradient(values: Array) -> Array:
        return np.asarray((np.eye(1, len(values), k - 1)[0] - share(values)) / values.sum())

    return _spectral(ANISOTROPY, share, m, centered, k, gradient=gradient, **ends)


def singular_entropy(x: Any, *, centered: bool = True, mask: Any = None) -> Measurement:
    """`SINGULAR_ENTROPY` of `x`, rows or moments; undefined for rows that are all equal (all zero when raw).
    >>> round(singular_entropy([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 4)  # ln 2
    0.6931
    """
    m = moments_of(x, mask)
    ends: Any = {"gradient": lambda values: _entropy_gradient(values, 1.0), "highest": math.log(m.d)}
    return _spectral(SINGULAR_ENTROPY, _entropy, m, centered, **ends)


def condition_number(x: Any, *, centered: bool = False, mask: Any = None) -> Measurement:
    """`CONDITION_NUMBER` of `x`, rows or moments.

    Undefined: the matrix does not have full column rank, to the precision of the products.
    >>> round(condition_number([[3.0, 0.0], [0.0, 1.0]]), 12)
    3.0
    """
    m = moments_of(x, mask)
    values = m.spectrum(centered=flag(centered, "centered"))
    if m.n < m.d or values[-1] <= m.spectral_rounding(centered=centered)[-1]:
        small = f"the smallest of {m.d} squared singular values cannot be distinguished from rounding"
        advice = "or their precision is too low: try float64 rows"
        raise UndefinedMeasure(f"{small}. Either the rows do not span all dimensions, {advice}")

    def condition(values: Array) -> float:
        return math.sqrt(float(values[0] / values[-1]))

    def gradient(values: Array) -> Array:
        slopes = np.zeros(len(values))
        slopes[0] = condition(values) / 2 / values[0]
        slopes[-1] -= condition(values) / 2 / values[-1]
        return slopes

    return _spectral(CONDITION_NUMBER, condition, m, centered, gradient=gradient)


def fit_alpha(eigenvalues: Array) -> tuple[float, int, int]:
    """alpha-ReQ: alpha of falling eigenvalues (D,) ~ rank^-alpha (Agrawal et al. 2022), and the first and last rank
    fitted.

    Least squares of the logarithms with weights 1 / rank (Stringer et al. 2019) over ranks 3 to 100; from rank 1 where
    there are fewer than 16 eigenvalues. Undefined: fewer than 3 eigenvalues above rounding.
    """
    first = 3 if len(eigenvalues) >= 16 else 1
    kept = eigenvalues[first - 1 : 100]
    kept = kept[kept > 1e-7 * float(eigenvalues[0])]
    if len(kept) < 3:
        raise UndefinedMeasure(f"expected at least 3 eigenvalues from rank {first} on, got {len(kept)}")
    ranks = np.arange(first, first + len(kept), dtype=np.float64)
    x, weights = np.log(ranks), 1 / ranks / (1 / ranks).sum()
    x = x - weights @ x
    return float(-(weights * x) @ np.log(kept) / ((weights * x) @ x)), first, first + len(kept) - 1


def effective_dimensions(singular: Array) -> float:
    """exp of the entropy of singular values (D,) over their sum (Roy & Vetterli 2007).

    >>> round(effective_dimensions(np.array([3.0, 1.0])), 4)  # (4/3)^(3/4) 4^(1/4)
    1.7548
    """
    if not float(singular.sum()) > 0:
        raise UndefinedMeasure("a matrix of zeros has no spectrum: pass rows that differ")
    return math.exp(_entropy(singular))


def logit_spectrum(gram: Array, second: Array) -> Array:
    """The singular values, falling, of the centred logits of many states, root mean square over the states, (D,).

    They are the singular values of C W S^(1/2), where C W is the head W (V, D) less its mean row, and S the second
    moment of the states. W -> W R with h -> R^-1 h does not change them, nor does adding a row to all rows of W. `gram`
    is (C W)' C W, and `second` is S.
    """
    values, vectors = np.linalg.eigh(second)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    squares = np.linalg.eigvalsh(root @ gram @ root)[::-1]
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def marchenko_pastur(n: float, d: int) -> Array:
    """The eigenvalues of the covariance of n isotropic rows of d features with unit variance, largest first.

    Marchenko & Pastur (1967): with g = d/n, they fill [(1 - sqrt g)^2, (1 + sqrt g)^2] with density sqrt((l+ - l)(l -
    l-)) / (2 pi g l); when g > 1, a share 1 - 1/g of them is zero. Returns the d quantiles at (k - 1/2) / d, whose mean
    is 1.
    """
    if not finite_number(n, "n") > 0:
        raise InputError(f"expected n above 0, got {n}: pass the number of rows, or an effective number")
    return _quantiles(float(n), whole_number(d, "d", 1, 10**8)).copy()


@lru_cache(maxsize=8)  # one diagnosis needs the same two or three again and again
def _quantiles(n: float, d: int) -> Array:
    g = d / n
    # With l = 1 + g - 2 sqrt(g) cos(t), the density in t is 2 sin(t)^2 / (pi l), free of square-root edges.
    t = np.linspace(0.0, math.pi, 8192)
    values = 1 + g - 2 * math.sqrt(g) * np.cos(t)
    density = 2 * np.square(np.sin(t)) / (math.pi * np.maximum(values, 1e-12))
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    mass *= min(1.0, 1 / g) / mass[-1]
    wanted = (np.arange(d) + 0.5) / d - max(0.0, 1 - 1 / g)
    quantiles = np.where(wanted <= 0, 0.0, np.interp(wanted, mass, values))[::-1]
    return np.asarray(quantiles * (d / quantiles.sum()))


def _spectral(
    what: MeasureDescription,
    function: Function,
    m: Moments,
    centered: bool,
    k: int = 0,
    *,
    gradient: Callable[[Array], Array],
    leading: int = 0,
    **ends: float,
) -> Measurement:
    """A `function` of the first `leading` values and the sum of the others needs no decomposition. Its `gradient` gives
    what a row adds: y y' less the covariance adds (y . v)^2 to the eigenvalue of the eigenvector v, to first order."""
    centered = flag(centered, "centered")
    values = m.leading_spectrum(leading, centered=centered) if leading else m.spectrum(centered=centered)
    if float(values.sum()) <= 0:
        alike = "equal" if centered else "zero"
        raise UndefinedMeasure(f"rows that are all {alike} have no spectrum: pass rows that differ")
    warnings, error = spectral_warnings(m, centered=centered), 0.0
    if not leading:  # the first few values and their sum keep their digits
        values, error, dropped = _resolved(values, function, m, centered)
        if dropped:
            are = plural(dropped, "value counts as 0, because it is", "values count as 0, because they are")
            warnings += (f"{count(dropped)} squared singular {are} within the rounding of the largest",)
    value = function(values)
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            reference = function(marchenko_pastur(m.effective_n - int(centered), m.d))
    except (ZeroDivisionError, ValueError):
        reference = math.nan  # an isotropic cloud of so few rows has no such number
    asked = {"rows": "mean row subtracted" if centered else "uncentred", "k": k}
    rest = {"suffix": f"_{k}" if k else "", "warnings": warnings + rounding_warnings(value, m, error)}

    def influence() -> Array:
        whole = not leading
        found = np.square(products(m, centered=centered)) if whole else leading_squares(m, leading, centered=centered)
        return np.asarray(found @ gradient(values)[: found.shape[1]].astype(found.dtype))

    of = {"reference": reference, "centered": centered, "asked": asked, "influence": influence}
    return reading(what, value, m, **of, **rest, **ends)


def _resolved(values: Array, function: Function, m: Moments, centered: bool) -> tuple[Array, float, int]:
    """The eigenvalues, with 0 for values that may be only rounding; the error of `function` of them; and how many are
    0."""
    most = min(m.n - int(centered), m.d)
    resolved = values > m.spectral_rounding(centered=centered)
    resolved[most:] = False  # so few rows span no more directions: the others are rounding
    kept = np.where(resolved, values, 0.0)
    value, moves = function(kept), np.where(resolved, m.spectral_error(centered=centered), 0.0)
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (16, len(values)))
    moved = [function(kept + sign * moves) - value for sign in signs]
    as_came = np.where(np.arange(len(values)) < most, values, 0.0)
    error = _DEVIATIONS * math.sqrt(float(np.square(moved).mean())) + 2 * abs(function(as_came) - value)
    return kept, error, most - int(resolved.sum())


def _entropy(weights: Array) -> float:
    p = weights[weights > 0] / weights.sum()
    return float(-(p * np.log(p)).sum())


def _entropy_gradient(values: Array, power: float, *, added: float = 0.0) -> Array:
    """The gradient, by the values, of the entropy of p = values^power over their sum, plus `added`; 0 where a value is
    0."""
    kept, gradient = values > 0, np.zeros_like(values)
    p = values[kept] ** power / (values[kept] ** power).sum()
    logs = np.log(p + added)
    gradient[kept] = power * p / values[kept] * (float(p @ logs) - logs)
    return gradient
