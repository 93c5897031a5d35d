"""`measures`: what each measure means."""

from uncone.arguments import shown
from uncone.errors import InputError, nearest
from uncone.measure import DESCRIPTIONS
from uncone.records.measures import Measures
from uncone.records.text import title

_ALSO = {"i(w)": "partition_isotropy"}


def measures(name: str = "") -> Measures:
    """The descriptions of all measures, or of the one called `name`.

    Args:
        name: a measure, or a variant of a measure such as "effective_rank_raw"; all by default. The title that a
            diagnosis prints will do, and "I(W)".

    Raises:
        InputError: no measure has this name.
    """
    if not isinstance(name, str):
        raise InputError(f"expected the name of a measure, got {shown(name)}: leave it out for all of them")
    if not name:
        return Measures(tuple(DESCRIPTIONS.items()))
    named = {
        known: (question, (description,))
        for question, descriptions in DESCRIPTIONS.items()
        for description in descriptions
        for known in (description.name, *(variant for variant, _ in description.variants))
    }
    called = {title(known).partition(",")[0].casefold(): known for known in reversed(named)} | _ALSO
    known = called.get(name.partition(",")[0].strip().casefold(), name)
    if known not in named:
        advice = nearest(name, named, "`uncone measures` lists them")
        raise InputError(f"expected the name of a measure, got {name!r}: {advice}")
    return Measures((named[known],))
