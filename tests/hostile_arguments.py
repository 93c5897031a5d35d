"""Every argument of every public function, replaced by what it is not: an error with a way out, or a sane result.

`python -m tests.hostile_arguments` prints what is neither. It is a program because pytest checks the types of each
call here, where a user's process does not.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

import uncone
from uncone import measure, transforms
from uncone.calibration import drift
from uncone.errors import InputError, UnconeError, UndefinedMeasure
from uncone.moments import Moments
from uncone.records.parts import Measurement

N, D = 40, 6
X = np.random.default_rng(0).standard_normal((N, D)) + 0.5
Y = np.random.default_rng(1).standard_normal((N, D))
MANY = np.tile(X, (10, 1))
COUNTS = np.arange(1, N + 1)
HIDDEN, WEIGHT = torch.from_numpy(X).float(), torch.from_numpy(Y).float()
LABELS = torch.arange(N) % 5
DISTANCES = torch.pdist(HIDDEN.double()).sort().values.numpy()
SCORES = np.random.default_rng(2).standard_normal(N)
CALIBRATION = uncone.calibrate(X)
MEMBERSHIP = measure.frequency_membership(N, counts=COUNTS)
NEIGHBOURS = measure.nearest_neighbours(X, 5, distinct=True)

NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-1": -1, "0": 0, "2.5": 2.5, "1e300": 1e300}
LISTS = {"list of text": ["a"], "empty list": [], "list": [3], "nan list": [math.nan], "ragged": [[1.0], [1.0, 2.0]]}
OBJECTS = {"none": None, "huge": 10**30, "true": True, "text": "a", "dict": {"a": 1}, "object": object(), "bytes": b"a"}
SHAPES = {"empty": (0,), "no rows": (0, D), "no columns": (N, 0), "one column": (N, 1), "wrong width": (N, D + 1)}
SHAPES |= {"wrong length": (N + 1,), "one row": (1, D), "cube": (3, 4, D)}
DTYPES = {"whole": int, "bool": bool, "complexes": complex}
FILLED = {"infinite": math.inf, "negative": -1.0, "fractions": 0.5, "zeros": 0.0}
TENSORS = {"tensor": torch.ones(N, D + 1), "half": torch.ones(N, D).half(), "meta": torch.ones(N, D, device="meta")}
HOSTILE: dict[str, Any] = OBJECTS | NUMBERS | LISTS | TENSORS
HOSTILE |= {name: np.ones(shape) for name, shape in SHAPES.items()}
HOSTILE |= {name: np.ones((N, D), dtype) for name, dtype in DTYPES.items()}
HOSTILE |= {name: np.full(N, value) for name, value in FILLED.items()}
HOSTILE |= {"scalar": np.float64(3), "objects": np.array([[None]] * N), "texts": np.array(["a"] * N)}
HOSTILE |= {"nans": np.full((N, D), math.nan), "large": np.full((N, D), 1e300), "complex": 1j}
HOSTILE |= {"integers": torch.ones(N, dtype=torch.int64), "far": torch.full((N,), 10**12)}
Call = tuple[str, Callable[..., Any], dict[str, Any]]


def _call(function: Callable[..., Any], /, *label: str, **base: Any) -> Call:
    return " ".join(label) or function.__name__, function, base


def _rows(function: Callable[..., Any], **rest: Any) -> Call:
    return _call(function, x=X, mask=np.ones(N, int), **rest)


def _second_pass(function: Callable[..., Any], **rest: Any) -> Call:
    return _call(function, rows=X, **rest)


def _fit(repair: Callable[..., Any], /, **options: Any) -> Call:
    def fitted(x: Any, weights: Any, **options: Any) -> Any:
        return repair(**options).fit(x, weights=weights).transform(x)

    return _call(fitted, repair.__name__, x=X, weights=COUNTS, **options)


def _cosine(table: Any, **options: Any) -> Any:
    return uncone.CosinePenalty(**options)(table)


def _orthogonal(points: Any, labels: Any, **options: Any) -> Any:
    return uncone.OrthogonalPenalty(**options)(points, labels)


def _isoscore(points: Any, labels: Any, **options: Any) -> Any:
    return uncone.IsoScorePenalty(**options)(points, labels)


def _entropy(points: Any, labels: Any, **options: Any) -> Any:
    return uncone.PersistentEntropy(**options)(points, labels)


DRAWN = {"resamples": 100, "level": 0.9, "seed": 0}
BARS = {"lengths": torch.rand(8), "bars": torch.tensor([8])}
LOSS = {"hidden": HIDDEN, "weight": WEIGHT, "labels": LABELS, "bias": torch.zeros(N), "options": None}
SMOOTH = {"label_smoothing": 0.1, "z_loss": 0.1, "softcap": 3.0, "logit_scale": 1.0, "reduction": "mean"}
GATE = {"vocab_size": N, "window": 10, "rare_share": 0.2, "alpha": None, "mode": "relative", "gate_max": 0.03}
GATE |= {"memory": "exact", "counts": COUNTS, "protected_ids": (1,), "n_tokens": N, "start_step": 1}
SEARCH = {"margin": 1e-4, "held_out": Y, "windows": None, "seed": 0, "most": 100}
PLAIN = (measure.gaussian_isotropy, measure.mean_cosine, measure.mean_shift, measure.moments_of, measure.rankme)
CALLS: tuple[Call, ...] = (
    *map(_rows, (*PLAIN, measure.rogue_dimensions)),
    *map(_fit, (transforms.Center, transforms.RemoveMeanDirection, transforms.ScaledCenter, transforms.Standardize)),
    _rows(measure.anisotropy, k=1),
    _rows(measure.condition_number, centered=False),
    _rows(measure.dominant_dimension, centered=True),
    _rows(measure.effective_rank, centered=True),
    _rows(measure.isoscore, debiased=False),
    _rows(measure.isoscore_star, zeta=0.2, target=np.eye(D)),
    _rows(measure.outlier_dimensions, sigmas=3.0),
    _rows(measure.participation_ratio, debiased=True),
    _rows(measure.singular_entropy, centered=True),
    _rows(measure.stable_rank, centered=False),
    _rows(measure.uniformity, t=2.0),
    _rows(measure.all, neighbours=False),
    _second_pass(measure.hubness, k=5, metric="cosine", sample=20, seed=0),
    _second_pass(measure.hubness, k=5, neighbours=measure.nearest_neighbours(X, 5, metric="cosine")),
    _second_pass(measure.levina_bickel, k=5, sample=20, seed=0),
    _second_pass(measure.levina_bickel, k=5, neighbours=NEIGHBOURS),
    _second_pass(measure.nearest_neighbours, k=5, metric="cosine", distinct=True, sample=20, seed=0),
    _second_pass(measure.partition_isotropy),
    _call(lambda moments: measure.partition_isotropy(X, moments), "moments of the rows", moments=Moments.of(X)),
    _second_pass(measure.two_nn, sample=20, seed=0),
    _second_pass(measure.uniformity_exact, t=2.0, sample=20, seed=0),
    _call(measure.under_trained_tokens, rows=MANY, prefer="norm", counts=np.arange(10 * N) // 20, rate=0.01, most=20),
    _call(measure.benjamini_hochberg, p=np.linspace(0, 1, N)),
    _call(measure.by_group, rows=X, measures=[measure.mean_cosine], groups=COUNTS % 3),
    _call(measure.by_group, "by_group of bins", rows=X, measures=[measure.mean_cosine], bin_size=10),
    _call(measure.cosine_between, a=X, b=Y, shared=0),
    _call(measure.frequency_membership, n=N, counts=COUNTS, reserved=[0, 3]),
    _call(measure.compare_groups, rows=X, membership=MEMBERSHIP, counts=COUNTS, confidence=0.95),
    _call(measure.local_dimensions, neighbours=NEIGHBOURS, k=4),
    _call(measure.marchenko_pastur, n=100.0, d=5),
    _call(measure.permutation_test, rows=X, members=np.arange(5), seed=0, permutations=9, mask=None),
    _call(measure.reserved_rows, labels=["a"] * N, n=N),
    _call(measure.robust_null, values=np.random.default_rng(3).standard_normal(200)),
    _call(measure.GroupMoments, count=3, d=D),
    _call(measure.OddRowFinder, d=D, n=N),
    _call(Moments, d=D, shift=np.zeros(D)),
    _call(Moments.of, rows=X, weights=COUNTS, shift=np.zeros(D)),
    _call(lambda **given: Moments(D).update(**given), "update", block=X, weights=COUNTS),
    _call(Moments.of(X).merge, other=Moments.of(Y)),
    _call(Moments.of(X).leading_spectrum, k=2, centered=True),
    _fit(transforms.AllButTheTop, n_components=1, centered=True),
    _fit(transforms.ClusterCenter, n_clusters=3, n_components=2, seed=0),
    _fit(transforms.Whiten, kind="zca", power=0.5, floor=1e-4, n_components=3),
    _call(transforms.Center().fit(X).transform, x=X),
    _call(transforms.Center().fit(X).inverse_transform, y=X),
    _call(transforms.Affine, shift=np.zeros(D), weight=np.eye(D), offset=np.ones(D)),
    _call(transforms.Normalized, repair=transforms.Center().fit(X)),
    _call(transforms.repair_named, name="center", d=D),
    _call(uncone.correlation, x=SCORES, y=COUNTS, kind="spearman"),
    _call(uncone.correlation_bootstrap, score_a=SCORES, score_b=SCORES[::-1], gold=COUNTS, **DRAWN),
    _call(uncone.correlation_bootstraps, baseline=SCORES, others=[SCORES[::-1]], gold=COUNTS, **DRAWN),
    _call(uncone.paired_bootstrap, per_item_a=SCORES, per_item_b=SCORES[::-1], **DRAWN),
    _call(uncone.paired_bootstraps, baseline=SCORES, others=[SCORES[::-1]], **DRAWN),
    _call(uncone.barcode, points=HIDDEN, groups=LABELS),
    _call(uncone.persistent_entropy, **BARS),
    _call(uncone.prominent_bars, lengths=torch.rand(8), convention="official"),
    _call(uncone.prominent_counts, **BARS, convention="official", width=8),
    _call(uncone.prominent_mask, **BARS, convention="official", width=8),
    _call(uncone.anisotropy_scores, points=HIDDEN, labels=LABELS, k=3),
    _call(_cosine, table=WEIGHT, weight=1.0, rows=[0, 2]),
    _call(_orthogonal, points=HIDDEN, labels=LABELS, mean_weight=1.0, second_moment_weight=1.0),
    _call(_isoscore, points=HIDDEN, labels=LABELS, weight=1.0, zeta=0.2, target=torch.eye(HIDDEN.shape[1])),
    _call(_entropy, points=HIDDEN, labels=LABELS, weight=1.0, length_weight=0.1, convention="official"),
    _call(uncone.RareTokenGate, **GATE, ignore_index=-100),
    _call(uncone.CrossEntropyOptions, ignore_index=-100, **SMOOTH, num_items=10, chunk=16, backend="chunk"),
    _call(uncone.linear_cross_entropy, **LOSS),
    _call(uncone.gated_linear_cross_entropy, **LOSS, gate=None),
    _call(uncone.uniformly_negative_direction, hidden=X, norm=None, **SEARCH),
    _call(uncone.unreachable_tokens, head=X, bias=np.zeros(N), labels=None, states=Y, scale=1.0, most_listed=5),
    _call(uncone.settable_tokens, head=X, states=Y, sets=2, seed=0),
    _call(uncone.context_rank, source=[[1, 2, 3, 1, 2, 4, 1, 2, 3]] * 4, order=2, dimensions=3, seed=0),
    _call(uncone.calibrate, vectors=X, queries=Y, metric="cosine", scores=[0.5], rates=(0.05, 0.01)),
    _call(drift.drift, saved=CALIBRATION, now=CALIBRATION),
    _call(uncone.open_rows, spec=X),
    _call(uncone.diagnose, spec=X, counts=COUNTS),
    _call(uncone.measures, name="isoscore"),
)


def _is_sane(result: Any) -> bool:
    """No number in it is NaN."""
    if isinstance(result, Measurement):
        return result.value is None or math.isfinite(result.value)
    if isinstance(result, torch.Tensor):
        return not bool(result.detach().isnan().any())
    is_real = isinstance(result, float) or (isinstance(result, np.ndarray) and result.dtype.kind == "f")
    return not is_real or not np.isnan(result).any()


def faults() -> Iterator[str]:
    for label, function, base in CALLS:
        if fault := _fault(partial(function, **base), UndefinedMeasure):
            yield f"{label}: {fault}"
        for name in base:
            for kind, value in HOSTILE.items():
                if fault := _fault(partial(function, **base | {name: value})):
                    yield f"{label}, {name} is {kind}: {fault}"


def _fault(call: Callable[[], Any], refused_by: type[UnconeError] = UnconeError) -> str:
    """What is wrong with the answer, if anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UserWarning)
        try:
            return "" if _is_sane(call()) else "NaN"
        except refused_by as error:
            is_whole = ": " in str(error) or not isinstance(error, InputError)  # and what to do
            return "" if is_whole else str(error)
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:90]}"


if __name__ == "__main__":
    for fault in faults():
        print(fault, flush=True)
