"""A layer's sampled states on its singular directions, by the counts of their tokens."""

from dataclasses import replace
from typing import Any

import numpy as np

from uncone.diagnosis.picture import draw_picture, evenly
from uncone.errors import InputError
from uncone.model.layer_states import LayerStates
from uncone.records.parts import Picture
from uncone.records.token_text import token_texts
from uncone.rows import Array, as_array, as_rows

MOST_DRAWN = 3000
_EACH, _GROUPS = 10, 6  # groups are of counts of one, two, ... digits


def picture_of(states: LayerStates, layer: int, counts: Any) -> Picture:
    """At most 3,000 sampled states of a layer, in groups by powers of ten of `counts` (V,).

    Raises:
        InputError: counts for a different number of ids, or no counts.
    """
    counts, v, sample = as_array(counts), len(states.labels), states.sample
    came = getattr(counts, "shape", type(counts).__name__)
    if came != (v,) or counts.dtype.kind not in "biu":
        raise InputError(f"expected whole counts of {v} ids, got {came}: count the tokens with this model's tokenizer")
    places = evenly(len(sample.ids), MOST_DRAWN)
    often = counts[sample.ids[places]].astype(np.int64)
    rows = as_rows(sample.layers[layer][places], name=states.layers[layer])
    drawn = draw_picture(rows, states.moments[layer], None, counts=often)
    (names, groups), ids = frequency_groups(often), sample.ids[places].tolist()
    drawn = replace(drawn, total=states.tokens, ids=tuple(ids), labels=tuple(token_texts(states.labels, ids)))
    return replace(drawn, groups=tuple(groups.tolist()), group_names=names)


def frequency_groups(counts: Array) -> tuple[tuple[str, ...], Array]:
    """Names of at most six groups by powers of ten of counts (n,), and the group of each.

    >>> frequency_groups(np.array([0, 7, 12, 150]))
    (('seen 0 times', 'seen 1 to 9 times', 'seen 10 to 99 times', 'seen 100 times or more'), array([0, 1, 2, 3]))
    """
    digits = np.where(counts > 0, np.floor(np.log10(np.maximum(counts, 1))).astype(np.int64) + 1, 0)
    most = int(digits.max())
    least = max(int(digits.min()), most - _GROUPS + 1)
    return tuple(_named(k, k == least, k == most) for k in range(least, most + 1)), np.maximum(digits - least, 0)


def _named(digits: int, first: bool, last: bool) -> str:
    low, high = (0 if digits == 0 else _EACH ** (digits - 1)), _EACH**digits - 1
    if last and digits:
        return f"seen {low:,} times or more"
    if first:
        return f"seen {high:,} times or fewer" if high else "seen 0 times"
    return f"seen {low:,} to {high:,} times"
