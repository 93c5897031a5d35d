"""Counts, lists and shares in the sentences of a record: one is singular, and no rounding reaches a limit."""

from collections.abc import Sequence

_MOST_DIGITS = 3
_LONGEST_LABEL = 200


def cut_label(label: str | None) -> str | None:
    """A token or word as a record holds it: at most 200 characters, the last an ellipsis where it was cut."""
    return label if label is None or len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"


def plural(n: int, one: str, many: str = "") -> str:
    """`one` for a single thing, else `many`, by default `one` with an s."""
    return one if n == 1 else many or f"{one}s"


def counted(n: int, one: str, many: str = "") -> str:
    """The number with its noun, thousands apart."""
    return f"{n:,} {plural(n, one, many)}"


def listing(parts: Sequence[str]) -> str:
    """At least one part, as a sentence lists them."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def percent(share: float, *, precise: bool = False) -> str:
    """A share in whole percent, or `precise` to three digits; with more where those would reach 0 or 100."""
    if precise and f"{100 * share:.3g}" not in ("0", "100"):
        return f"{100 * share:.3g}%"
    for digits in range(_MOST_DIGITS + 1):
        shown = f"{share:.{digits}%}"
        if share in (0.0, 1.0) or float(shown[:-1]) not in (0.0, 100.0):
            return shown
    least = 10.0**-_MOST_DIGITS
    if share > 0.5:
        return ">100%" if share > 1 else f">{100 - least:.{_MOST_DIGITS}f}%"
    return f"<{least:.{_MOST_DIGITS}f}%" if share > 0 else "<0%"
