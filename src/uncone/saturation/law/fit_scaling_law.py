from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from uncone.errors import InputError
from uncone.roles import Progress, Source
from uncone.rows import Array
from uncone.saturation.law.fit import CONSTANTS, DELTA, Law, Problem, checked, fitted, problem_of
from uncone.saturation.law.intervals import Uncertainty, uncertainty
from uncone.saturation.law.record import Gap, LawConstant, LawLine, LawRun, Parameters, ScalingLaw
from uncone.saturation.law.verdict import notes, verdict
from uncone.saturation.tables.cells import is_empty, number_of
from uncone.saturation.tables.sources import open_table
from uncone.statistics.holm import holm
from uncone.version import versions

COLUMNS = ("n", "t", "loss")


def fit_scaling_law(
    source: Source,
    *,
    columns: Mapping[str, str] | None = None,
    smallest: float | None = None,
    fixed: Mapping[str, float] | None = None,
    parameters: Parameters = "total",
    delta: float = DELTA,
    seed: int = 0,
    resamples: int = 1000,
    progress: Progress | None = None,
) -> ScalingLaw:
    """Fit L = A / N^alpha + B / T^beta + E to runs, and show how far each run is from the law.

    Huber's loss of ln L is summed over the runs and minimised from 4,500 starts (Hoffmann et al. 2022, approach 3).
    Both intervals are calibrated by fits of simulated runs with log-normal noise: the profile interval holds the values
    at which the sum, with all else refitted, is not too large, and the bootstrap interval is studentised.

    Args:
        source: a table of runs (CSV, TSV, JSON lines, Parquet, a pandas DataFrame or a mapping of columns): `model`
            (may be missing), `n` (parameters), `t` (tokens) and `loss` (nats per token).
        columns: other names of these columns, such as {"n": "params", "t": "tokens"}.
        smallest: fit only the runs with at least this many parameters, and read the gap of the smaller runs from their
            law. By default all runs are fitted.
        fixed: constants that are given, by name: "A", "alpha", "B", "beta" or "E".
        parameters: what `n` counts: "total", or "non-embedding". The verdict names it, because it may change the sign.
        delta: where Huber's loss turns from squares to sizes.
        seed: for the simulated runs.
        resamples: how many simulations for the intervals; 0 leaves the intervals out.
        progress: called with (the step, done, in all).

    Raises:
        InputError: columns that are missing, numbers that are not above 0, fewer runs than constants, or runs that do
            not determine the constants.

    Reads badly when few runs are left beyond the constants, when all runs have about one N or T, and for runs far
    smaller or larger than the fitted runs.

    Example:
        >>> import uncone
        >>> runs = {"n": [1e8, 2e8, 4e8, 8e8], "t": [2e10] * 4, "loss": [3.4, 3.2, 3.05, 2.9]}
        >>> law = uncone.fit_scaling_law(runs, fixed={"B": 410.7, "beta": 0.28, "E": 1.69}, resamples=200)
        >>> [constant.name for constant in law.constants if not constant.given]
        ['A', 'alpha']
    """
    if parameters not in ("total", "non-embedding"):
        raise InputError(f"expected parameters 'total' or 'non-embedding', got {parameters!r}: say what n counts")
    name, models, n, t, losses = _runs(source, columns)
    is_fitted = np.ones(len(n), bool) if smallest is None else n >= smallest
    if not is_fitted.any():
        raise InputError(f"expected runs of at least {smallest:g} parameters, got at most {n.max():g}: lower smallest")
    problem = problem_of(n[is_fitted], t[is_fitted], losses[is_fitted], fixed=fixed, delta=delta)
    law, known = fitted(problem), None
    if problem.spare > 0 and resamples:
        known = uncertainty(problem, law, resamples, seed, progress)
    constants = _constants(law, problem, fixed or {}, known)
    rows = zip(models, n.tolist(), t.tolist(), losses.tolist(), is_fitted.tolist(), strict=True)
    runs = tuple(_run(model, *run, law=law, known=known) for model, *run in rows)
    held = ~is_fitted
    if known and held.any():
        chances = iter(holm(known.chances(n[held], t[held], losses[held])))
        runs = tuple(run if run.fitted else replace(run, p_holm=next(chances)) for run in runs)
    found = known.mean_gap(n[held], t[held], losses[held]) if known and held.any() else None
    gap = found and Gap(*found)
    summary = verdict(runs, constants, gap, parameters, smallest)
    remarks = tuple(notes(runs, constants, gap, problem.at_limit(law.theta), parameters, delta, resamples))
    noise, used = (known.noise, resamples) if known else (None, 0)
    fit = (law.objective, delta, noise, gap, _line(n, t, law, known), used, seed)
    return ScalingLaw(summary, name, parameters, constants, runs, *fit, remarks, versions("numpy"))


def _constants(
    law: Law, problem: Problem, fixed: Mapping[str, float], known: Uncertainty | None
) -> tuple[LawConstant, ...]:
    profiles, bootstrap = (known.profiles(), known.constants()) if known else ({}, {})
    values = vars(law) | dict(fixed) | dict.fromkeys(problem.missing(law.theta), 0.0)
    return tuple(
        LawConstant(name, float(values[name]), name in fixed, profiles.get(place), bootstrap.get(place))
        for place, name in enumerate(CONSTANTS)
    )


def _run(
    model: str, n: float, t: float, loss: float, is_fitted: bool, *, law: Law, known: Uncertainty | None
) -> LawRun:
    held = known.mean_gap(*(np.array([value]) for value in (n, t, loss))) if known and not is_fitted else None
    predicted = float(law.predict(n, t))
    return LawRun(model, n, t, loss, predicted, loss / predicted - 1, is_fitted, held and held[1:])


def _line(n: Array, t: Array, law: Law, known: Uncertainty | None) -> LawLine:
    """The law over the sizes of the runs, at the tokens that most runs have."""
    lengths, counts = np.unique(t, return_counts=True)
    at = float(lengths[len(counts) - 1 - np.argmax(counts[::-1])])
    sizes = np.geomspace(n.min() / 1.2, n.max() * 1.2, 48)
    band = known and known.band(sizes, np.full(len(sizes), at))
    low, high = (tuple(ends.tolist()) for ends in band or np.empty((2, 0)))
    return LawLine(at, tuple(sizes.tolist()), tuple(law.predict(sizes, at).tolist()), low, high)


def _runs(source: Any, columns: Mapping[str, str] | None) -> tuple[str, list[str], Array, Array, Array]:
    usual = {name: name for name in ("model", *COLUMNS)}
    called, table = usual | dict(columns or {}), open_table(source)
    missing = [name for name in COLUMNS if called[name] not in table.columns]
    if missing or len(called) > len(usual):
        wrong = ", ".join([called[name] for name in missing] or sorted(called.keys() - usual))
        first = (*missing, "n")[0]
        have = f"expected the columns {', '.join(called.values())}, got {', '.join(table.columns)} (without {wrong})"
        raise InputError(f'{have}: name them by columns={{"{first}": ...}} (--columns {first}=...)')
    for name in COLUMNS:
        for row, cell in enumerate(table.columns[called[name]], 1):
            if is_empty(cell) or number_of(cell) is None:
                came = f"got {str(cell)[:40]!r}: correct it or leave the run out"
                raise InputError(f"expected a number for {called[name]} in run {row}, {came}")
    n, t, losses = checked(*(list(map(float, table.columns[called[name]])) for name in COLUMNS))
    models = list(map(str, table.columns.get(called["model"], range(len(n)))))
    return table.short_name, models, n, t, losses
