"""A repair of vectors: fitted or loaded, and what it did to them."""

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

import numpy as np

from uncone import measure
from uncone.errors import InputError
from uncone.measure.odd_rows import GIANT
from uncone.measure.reading import read
from uncone.model.counts import read_counts
from uncone.model.open import open_rows
from uncone.moments import Moments
from uncone.records.parts import Fitted, Measurement
from uncone.records.text import listing, percent, plural
from uncone.repairs.record import NEAR_ZERO, NOT_KNOWN, Lengths, RepairCost, Repaired, ways
from uncone.roles import Path_, Progress
from uncone.rows import Array, Rows, as_rows
from uncone.threads import on_one_thread
from uncone.transforms import REPAIRS, Affine, Normalized, Transformation, Whiten, load, repair_named
from uncone.transforms.fitting import shared_name
from uncone.transforms.normalized import undivided
from uncone.version import versions

MOST_SENTENCES = 100_000  # more embeddings would not move a mean or a covariance, and all are held in memory
MOST_ROWS = 65_536
_MOST_BYTES = 128 * 2**20  # of measured rows on each side, which give the numbers of all rows to three digits
_ZIPF = "zipf_"
_TITLES = {"mean_cosine": "the mean cosine", "isoscore": "IsoScore", "effective_rank": "the effective rank"}
_UNWEIGHTED = (
    "The fit weighs rows by how often their tokens occur; the measures count each row once, so they need not improve."
)
_TURNED = "PCA whitening also turns the axes: coordinates no longer match, and how far vectors moved means little."
_GEOMETRY = "These numbers are about the vectors' geometry, not about a task."


@dataclass(frozen=True)
class RepairOptions:
    """The options of `uncone.repair`, which explains them."""

    method: str | None = None
    text: Path_ | None = None
    fit_on: object = None
    load: Path_ | None = None
    counts: Path_ | None = None
    save: Path_ | None = None
    force: bool = False
    overwrite: bool = False
    skip_nonfinite: bool = False
    most_sentences: int = MOST_SENTENCES
    normalize: bool = False


@dataclass(frozen=True)
class Fit:
    transformation: Transformation | Affine | Normalized
    method: str
    fitted: Fitted | None
    seconds: float | None = None
    notes: tuple[str, ...] = ()


def fit_repair(options: RepairOptions, own: Callable[[], Rows], progress: Progress | None = None) -> Fit:
    """Load the repair that `options` name, or fit it on the rows they name, or else on `own` rows."""
    if options.load is not None:
        loaded = load(options.load)
        inner = undivided(loaded)
        whole = Normalized(inner) if options.normalize else loaded
        if isinstance(inner, Affine):
            return Fit(whole, "Affine", inner.fitted)
        return Fit(whole, type(inner).__name__, inner.fitted_, None, inner.warnings_)
    method, counts = options.method, options.counts
    assert method is not None  # check_repair refused it
    rows = own() if options.fit_on is None else open_rows(options.fit_on, skip_nonfinite=options.skip_nonfinite)
    repair = repair_named(method, d=rows.shape[1])
    if options.force and isinstance(repair, Whiten):
        repair.force = True
    if method.startswith(_ZIPF) and counts is None:
        how = f"give --counts F (counts=F), or choose {method.removeprefix(_ZIPF)}"
        raise InputError(f"expected counts of tokens for {method}, got none: {how}")
    weights, notes = None, tuple[str, ...]()
    if counts is not None:
        if rows.left_out:
            got = f"got {len(rows.left_out)} left out: correct them"
            raise InputError(f"expected finite rows with --counts (counts=), {got}")
        counted = read_counts(counts, rows.shape[0], rows.labels)
        weights, notes = counted.counts.astype(np.float64), (*counted.notes, _UNWEIGHTED)
        method = f"{_ZIPF}{method.removeprefix(_ZIPF)}"
    tick = None if progress is None else lambda done: progress("fitting", done, rows.shape[0])
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the record has it
        repair.fit(rows, weights=weights, progress=tick)
    seconds = time.perf_counter() - began
    if isinstance(repair, Whiten) and repair.kind == "pca":
        notes = (*notes, _TURNED)
    whole = Normalized(repair) if options.normalize else repair
    return Fit(whole, method, repair.fitted_, seconds, (*notes, *repair.warnings_))


@dataclass(frozen=True)
class Geometry:
    measured: int = 0
    before: tuple[Measurement, ...] = ()
    after: tuple[Measurement, ...] = ()
    relative_change: float | None = None
    scale: float | None = None
    lengths_before: Lengths | None = None
    lengths_after: Lengths | None = None


def compare(before: Any, after: Any) -> Geometry:
    """Mean cosine, IsoScore, effective rank and I(W) of the same rows (N, D) and (N, K): up to `MOST_ROWS`, evenly
    spaced."""
    sides = as_rows(before), as_rows(after)
    n = sides[0].shape[0]
    room = _MOST_BYTES // (8 * max(rows.shape[1] for rows in sides))
    count = min(n, MOST_ROWS, max(2, room))
    chosen = np.arange(count) * (n - 1) // max(1, count - 1)
    x, y = (rows.take(chosen) for rows in sides)
    return Geometry(count, _measures(x), _measures(y), *_moved(x, y), _lengths(x), _lengths(y))


@on_one_thread
def _lengths(x: Array) -> Lengths | None:
    norms = np.linalg.norm(x.astype(np.float64), axis=1)
    norms = norms[norms > 0]
    return Lengths(float(norms.mean()), float(norms.min()), float(norms.max())) if len(norms) else None


@on_one_thread
def _moved(x: Array, y: Array) -> tuple[float | None, float | None]:
    """The part of y (N, K) that no positive multiple of x explains, as a share of its norm; and the scale |y| / |x|."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    of_x, of_y = float(np.linalg.norm(x)), float(np.linalg.norm(y))
    if of_x == 0:
        return None, None
    if x.shape != y.shape or of_y == 0:
        return (1.0 if x.shape == y.shape else None), of_y / of_x
    y /= of_y
    y -= max(float(np.vdot(x, y)) / of_x / of_x, 0.0) * x
    return min(float(np.linalg.norm(y)), 1.0), of_y / of_x


def _measures(x: Array) -> tuple[Measurement, ...]:
    m = Moments.of(x)
    cosine, isoscore = read("mean_cosine", measure.mean_cosine, m), read("isoscore", measure.isoscore, m)
    rank = read("effective_rank", measure.effective_rank, m)
    isotropy = read("partition_isotropy", measure.partition_isotropy, x, m)
    higher = tuple(replace(one, better="higher") for one in (isoscore, rank))
    return replace(cosine, better="lower"), *higher, replace(isotropy, better="neither")  # it depends on length


def record_of(
    fit: Fit,
    geometry: Geometry,
    options: RepairOptions,
    notes: tuple[str, ...],
    source: Path_,
    seconds: float,
    words: bool = False,
    **written: Any,
) -> Repaired:
    """The record of what was `written` from `source`, whose rows may be `words`, and of the seconds it took."""
    repair, sides = undivided(fit.transformation), dict(vars(geometry))
    affine = getattr(repair, "affine_", repair)
    lost = affine.rank_lost() if isinstance(affine, Affine) else None
    if (before := geometry.lengths_before) is not None and before.largest >= GIANT * before.mean:
        longest = f"{written['name']} has a row {before.largest / before.mean:.3g} times as long as rows are on average"
        notes = (f"{longest}. Such rows decide means and directions: leave them out first.", *notes)
    record = Repaired(
        **written,
        verdict="",
        method=fit.method,
        gains=gains(geometry),
        fitted=fit.fitted,
        cost=RepairCost(fit.seconds, seconds, sides.pop("relative_change"), lost, sides.pop("scale")),
        **sides,
        options=repair.options() if isinstance(repair, Transformation) else {},
        notes=(*fit.notes, *notes, _GEOMETRY),
        versions=versions("numpy", *["torch"] * (written["kind"] == "encoder")),
        normalized=repair is not fit.transformation,
    )
    verdict, index = f"{_verdict(record)} {_paid(record)}", _index(record, options, words)
    next_step = _next_step(record, quote(shared_name(os.fspath(source))), options, words)
    return replace(record, verdict=verdict, index=index, next_step=next_step)


def _next_step(record: Repaired, source: str, options: RepairOptions, words: bool) -> str:
    """The command that tries the repair on a task, from the source. Vectors that `--load` repaired belong to documents
    that were repaired before. Names in capitals are for the user to fill in."""
    named = f" --method {options.method}" if options.method in REPAIRS else ""
    if record.kind == "encoder":
        return f"uncone evaluate {source} --task sts --data PAIRS{named}"
    if words:
        return f"uncone evaluate {source} --task wordsim --data PAIRS{named}"
    queries, documents, on = "QUERIES", source, options.fit_on
    if options.load is not None:
        queries, documents = quote(record.out), "REPAIRED_DOCUMENTS"
    elif on is not None:
        queries = source
        documents = quote(shared_name(os.fspath(on))) if isinstance(on, str | os.PathLike) else "DOCUMENTS"
    return f"uncone evaluate --task retrieval --queries {queries} --documents {documents} --qrels QRELS{named}"


def _index(record: Repaired, options: RepairOptions, words: bool) -> tuple[str, ...]:
    """How to use the written rows in an index; nothing where nothing was measured."""
    before, after = record.lengths_before, record.lengths_after
    if after is None:
        return ()
    if after.is_unit:
        scores = "The rows have length 1, so their inner product is their cosine."
    elif before is not None and before.is_unit:
        scores = (
            "The rows had length 1 and have other lengths now, so their inner product is no longer their cosine. "
            "Compare them by cosine, or give rows and queries length 1 again (--normalize, normalize=True)."
        )
    else:
        scores = "The rows have different lengths, so their inner product is not their cosine."
    if words:
        return (scores,)
    texts, given = "", quote(record.out)
    if record.kind == "encoder":
        same, texts = "Encode both documents and queries with the written model.", " --texts TEXTS"
    else:
        file = options.save or options.load
        kept = "run" if file is not None else "keep it with --save T.safetensors, and run"
        saved = "T.safetensors" if file is None else quote(shared_name(os.fspath(file)))
        saved += " --normalize" if options.normalize and options.save is None and file is not None else ""
        other = "QUERIES" if options.load is None else "DOCUMENTS"
        command = f"`uncone repair {other} REPAIRED_{other} --load {saved}`"
        same = f"Queries and documents need the same transformation: {kept} {command}."
        if options.load is not None or options.fit_on is not None:
            given = f"REPAIRED_DOCUMENTS --queries {given}"
    inner = "" if after.is_unit else " (for inner products with `--metric inner_product`)"
    thresholds = (
        f"Thresholds chosen before the repair no longer apply: `uncone calibrate {given}{texts}` gives new ones{inner}."
    )
    return scores, same, thresholds


def gains(geometry: Geometry) -> bool | None:
    """Whether the common direction got clearly shorter or the dimensions are used clearly more evenly, and neither went
    the other way."""
    rounder, less, others = ways(geometry.before, geometry.after)
    return bool(rounder) and not less if rounder or less or others else None


def _verdict(record: Repaired) -> str:
    name, method = record.name, record.label
    if not record.measured:
        return f"{name} was repaired with {method}; nothing was measured."
    if record.gains is None:
        return (
            f"{name} was repaired with {method}. uncone cannot say whether it is rounder: neither its mean cosine "
            f"nor its IsoScore is defined before and after. {NOT_KNOWN}"
        )
    changes = [
        f"{_TITLES[before.name]} from {_shown(before.value)} to {_shown(after.value)}"
        for before, after in zip(record.before, record.after, strict=True)
        if before.name in _TITLES
    ]
    shape, common = f"{name} is {'rounder' if record.gains else 'not rounder'}", record.before[0].value
    rounder, less, others = ([_TITLES[one] for one in names] for names in ways(record.before, record.after))
    if rounder and less:
        shape = f"{name} is rounder by {listing(rounder)} and less round by {listing(less)}"
    elif rounder and others:
        shape = (
            f"Of these measures only {listing(rounder)} {plural(len(rounder), 'shows', 'show')} {name} to be rounder"
        )
    elif common is not None and abs(common) <= NEAR_ZERO and not record.gains:
        shape += f" (its mean cosine was near 0 already: {_shown(common)})"
    moved = f"{method} takes {listing(changes)}."
    if record.lost_unit_length and (lengths := record.lengths_after) is not None:
        moved += f" The rows had length 1 and are {_shown(lengths.mean)} long on average now."
    return f"{shape}. {moved} {NOT_KNOWN}"


def _paid(record: Repaired) -> str:
    cost, d = record.cost, record.d
    fit = "" if cost.fit_seconds is None else f"{_seconds(cost.fit_seconds)} to fit, "
    parts = [f"{fit}{_seconds(cost.apply_seconds)} to write"]
    if cost.relative_change is not None:
        parts.append(f"the vectors moved by {percent(cost.relative_change)} of their length")
        if cost.scale is not None and abs(cost.scale - 1) > 0.01:
            parts[-1] += f", leaving scale aside, and are {_shown(cost.scale)} times as long now"
    if record.k != d:
        parts.append(f"{record.k} of {d} columns are left")
    elif cost.rank_lost:
        parts.append(f"{cost.rank_lost} of {d} {plural(d, 'direction')} lost")
    elif cost.rank_lost is not None:
        parts.append("no direction was lost")
    return f"Cost: {'; '.join(parts)}."


def _shown(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
