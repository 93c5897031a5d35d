"""The names under which repairs are asked for and reported."""

from collections.abc import Callable

from uncone.errors import InputError
from uncone.transforms.center import Center, RemoveMeanDirection, ScaledCenter
from uncone.transforms.clusters import ClusterCenter
from uncone.transforms.components import AllButTheTop
from uncone.transforms.fitting import Transformation
from uncone.transforms.standardize import Standardize
from uncone.transforms.whitening import Whiten

REPAIRS: tuple[str, ...] = (
    "center",
    "scaled_center",
    "remove_mean_direction",
    "all_but_the_top_2",
    "all_but_the_top_d100",
    "all_but_the_top_original_2",
    "all_but_the_top_original_d100",
    "standardize",
    "whiten",
    "whiten_pca",
    "cluster_center",
)
"""Repairs that are fitted on rows alone; d100 stands for ceil(D / 100) directions. `original` is no repair."""
ZIPF_REPAIRS: tuple[str, ...] = ("zipf_center", "zipf_whiten", "zipf_all_but_the_top_d100")
"""The same as their namesakes, to be fitted with `weights=` the tokens' frequencies (Yokoi et al. 2024, whose whitening has power 1, and not 0.5)."""
_MADE: dict[str, Callable[[], Transformation]] = {
    "center": Center,
    "scaled_center": ScaledCenter,
    "remove_mean_direction": RemoveMeanDirection,
    "all_but_the_top_2": lambda: AllButTheTop(2),
    "all_but_the_top_d100": AllButTheTop,
    "all_but_the_top_original_2": lambda: AllButTheTop(2, centered=False),
    "all_but_the_top_original_d100": lambda: AllButTheTop(centered=False),
    "standardize": Standardize,
    "whiten": Whiten,
    "whiten_pca": lambda: Whiten("pca"),
    "cluster_center": ClusterCenter,
}


def repair_named(name: str, *, d: int) -> Transformation:
    """A new transformation, not fitted yet, for rows of `d` features.

    Args:
        name: one of `REPAIRS`, or of `ZIPF_REPAIRS`, which are fitted with `weights=`.
        d: features of the rows.

    Raises:
        InputError: no such name, or nothing would be left of rows of `d` features.

    Example:
        >>> repair_named("all_but_the_top_d100", d=768)
        AllButTheTop(n_components=8, centered=True)
    """
    plain = name.removeprefix("zipf_")
    if plain not in _MADE or (plain != name and name not in ZIPF_REPAIRS):
        raise InputError(
            f"expected one of {', '.join(REPAIRS + ZIPF_REPAIRS)}, got {name!r}: choose a repair"
        )
    found = _MADE[plain]()
    if isinstance(found, AllButTheTop) and found.n_components is None:
        found = AllButTheTop(-(-d // 100), centered=found.centered)
    removed = found.n_components if isinstance(found, AllButTheTop | ClusterCenter) else 0
    if removed is not None and removed >= d:
        raise InputError(
            f"expected rows of more than {removed} features for {name}, got {d}: choose another repair"
        )
    return found
