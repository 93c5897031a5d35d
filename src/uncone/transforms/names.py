"""All repairs, by their names in commands and by their classes in files."""

from collections.abc import Mapping, Sequence
from typing import Any

from uncone.arguments import shown, whole_number
from uncone.errors import InputError, expect, nearest
from uncone.roles import Path_
from uncone.transforms.affine import State
from uncone.transforms.center import Center, RemoveMeanDirection, ScaledCenter, Standardize
from uncone.transforms.clusters import ClusterCenter
from uncone.transforms.directions import AllButTheTop, Whiten
from uncone.transforms.fitting import Transformation
from uncone.transforms.normalized import Normalized, Repair

_NAMED: Mapping[str, tuple[type[Transformation], Mapping[str, Any]]] = {
    "center": (Center, {}),
    "scaled_center": (ScaledCenter, {}),
    "remove_mean_direction": (RemoveMeanDirection, {}),
    "all_but_the_top_2": (AllButTheTop, {"n_components": 2}),
    "all_but_the_top_d100": (AllButTheTop, {}),
    "all_but_the_top_original_2": (AllButTheTop, {"n_components": 2, "centered": False}),
    "all_but_the_top_original_d100": (AllButTheTop, {"centered": False}),
    "standardize": (Standardize, {}),
    "whiten": (Whiten, {"force": False}),
    "whiten_pca": (Whiten, {"kind": "pca", "force": False}),
    "cluster_center": (ClusterCenter, {}),
}
REPAIRS = tuple(_NAMED)
"""Fitted on rows alone; d100 means ceil(D / 100) directions. `original` is not a repair."""
ZIPF_REPAIRS = ("zipf_center", "zipf_whiten", "zipf_all_but_the_top_d100")
"""Fitted with `weights=` token frequencies (Yokoi et al. 2024, whose whitening has power 1)."""
_ELSEWHERE = {
    "center": ("mean", "mean_center", "mean_centering", "centering", "demean", "subtract_mean"),
    "scaled_center": ("scale_center", "bis"),
    "all_but_the_top_d100": ("abtt", "all_but_the_top", "remove_top", "remove_pcs"),
    "standardize": ("z_score", "zscore", "standard_scaler", "scale"),
    "whiten": ("zca", "whitening", "zca_whitening"),
    "whiten_pca": ("pca", "pca_whitening", "su"),
    "cluster_center": ("kmeans", "cluster", "cluster_based"),
}
"""Repairs by what papers and other programs call them."""
_CLASSES = {cls.__name__: cls for cls, _ in _NAMED.values()}


def repair_named(name: str, *, d: int) -> Transformation:
    """A new transformation, not fitted yet, for rows of `d` features; InputError where none would be left.

    Example:
        >>> repair_named("all_but_the_top_d100", d=768)
        AllButTheTop(n_components=8, centered=True)
    """
    whole_number(d, "d", 1)
    expect(isinstance(name, str), f"the name of a repair, got {shown(name)}: choose one of {', '.join(REPAIRS)}")
    plain = name.removeprefix("zipf_") if name in ZIPF_REPAIRS else name
    if plain not in _NAMED:
        raise unknown_repair(name, REPAIRS + ZIPF_REPAIRS)
    cls, options = _NAMED[plain]
    repair = cls(**({"n_components": -(-d // 100), **options} if cls is AllButTheTop else options))
    removed: int = repair.options().get("n_components") or 0
    expect(removed < d, f"rows of more than {removed} features for {name}, got {d}: choose another repair")
    return repair


def described(name: str) -> str:
    """The name of a repair, with the power of a whitening: whiten (power 0.5)."""
    cls, options = _NAMED.get(name.removeprefix("zipf_"), (None, {}))
    power = None if cls is None else cls(**options).options().get("power")
    return name if power is None else f"{name} (power {power:g})"


def unknown_repair(name: object, known: Sequence[str], what: str = "one of") -> InputError:
    """The error for a name that is not `known`, with the repair that it may mean."""
    plain = str(name).strip().casefold().replace("-", "_").replace(" ", "_")
    meant = [repair for repair, others in _ELSEWHERE.items() if plain in others and repair in known]
    advice = f"did you mean {meant[0]!r}?" if meant else nearest(plain, known, "choose a repair")
    if plain in ("normalize", "normalise", "normalized", "unit", "l2"):
        advice = "unit length alone is not a repair, give --normalize (normalize=True) with a repair"
    return InputError(f"expected {what} {', '.join(known)}, got {name!r}: {advice}")


def load(path: Path_) -> Repair:
    """Read what `save` of a transformation, of an `Affine` or of a `Normalized` wrote: the same class, fitted.

    InputError: no such file, not a saved transformation, or a damaged file."""
    state, known = State.load(path), ("Affine", *_CLASSES)
    got = f"got {state.kind[:60]!r}: read it with the version that wrote it"
    expect(state.kind in known, f"one of {', '.join(known)} in {path}, {got}")
    found = state.affine() if state.kind == "Affine" else _CLASSES[state.kind].from_state(state)
    return Normalized(found) if state.normalize else found
