"""Words and numbers for reports: hidden characters escaped, no number rounded onto a limit."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_THIN_SPACE = "\u202f"  # keeps a power on one line
Limits = tuple[float | None, float | None]  # the ends of a range, None where unbounded

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters and marks by category, but invisible: fillers, joiners and variation selectors.
_HIDDEN_SPANS = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
_HIDDEN_CHARACTERS = frozenset((0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0)).union(*_HIDDEN_SPANS)
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NEAR_DIGITS = 12  # enough to separate numbers near 1, such as the norms of unit rows
_MINUS = re.compile(r"(?<![\w.)\]-])-(?=\d)")
_POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e(-?\d+)(?!\w)")
COMMAND = re.compile("`((?:uncone|python|pip) [^`]+)`")  # a command to paste, in a text

# Names that would read badly with spaces for underscores.
_TITLES = {"isoscore": "IsoScore", "isoscore_star": "IsoScore*", "rankme": "RankMe", "two_nn": "TwoNN dimension"}
_TITLES |= {"levina_bickel": "Levina-Bickel dimension", "anisotropy_1": "Share of the first direction"}
_TITLES |= {"partition_isotropy_one_sign": "I(W) with one sign", "norm_id_correlation": "Correlation of norm and id"}
_TITLES |= {"effective_rank_share": "Effective rank as a share of the columns"}
_TITLES |= {"largest_row_over_mean": "Longest row over the mean length", "under_trained_tokens": "Under-trained tokens"}
_TITLES |= {"smallest_row_over_mean": "Shortest row over the mean length"}
_TITLES |= {"smallest_over_largest_singular_value": "Smallest over largest singular value"}
_TITLES |= {"rank_correlation_along_mean": "Rank correlation of count and distance along the mean row"}
_TITLES |= {"under_trained_share": "Share that looks untrained"}
_SUFFIXES = {"raw": ", raw", "centered": ", centred", "debiased": ", debiased", "exact": ", exact"}
_SUFFIXES |= {"nats": " (nats)", "ms": " (ms)", "mib": " (MiB)"}


def visible(text: str) -> str:
    """`text` with an escape for every character that cannot be seen, that reorders its neighbours, or that UTF-8 or XML
    forbids."""
    return text if text.isascii() and text.isprintable() else text.translate(_shown)


class _Shown(dict[int, str]):
    def __missing__(self, code: int) -> str:
        shown = chr(code)
        if unicodedata.category(shown) in _HIDDEN_CATEGORIES or code in _HIDDEN_CHARACTERS:
            shown = shown.encode("unicode_escape").decode("ascii") if code else "\\0"
        self[code] = shown
        return shown


_shown = _Shown()


def shortened(text: str, length: int = 40) -> str:
    shown = visible(text[: length + 1])
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def count(value: int) -> str:
    return f"{value:,}"


def number(value: float, *, limits: Limits = (None, None), digits: int = 3, most: int = 6) -> str:
    """`value` to about `digits` significant digits, with commas between thousands, or as `1.23e-4`. It is never
    rounded onto one of `limits`, 1 or -1: it gets up to `most` digits, or is shown as `<1`."""
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e7:
        return count(int(value))
    bounds = [-1.0, 1.0, *(float(limit) for limit in limits if limit is not None)]
    for precision in range(digits, max(digits, most) + 1):
        shown = _rounded(value, precision)
        near = float(shown.replace(",", ""))
        if not any(value < bound <= near or near <= bound < value for bound in bounds):
            return shown
    missed = min(bounds, key=lambda bound: abs(bound - value))
    return ("<" if value < missed else ">") + number(missed).lstrip("<>")


def _rounded(value: float, digits: int) -> str:
    scientific = f"{value:.{digits - 1}e}"
    exponent = int(scientific.partition("e")[2])  # of the rounded value: 9.996 counts as 10.0
    if exponent < -3 or exponent >= 7:
        return f"{scientific.partition('e')[0]}e{exponent}"
    return f"{value:,.{max(0, digits - 1 - exponent)}f}"


def signed(value: float, *, digits: int = 3) -> str:
    shown = number(value, digits=digits)
    return shown if value <= 0 or shown.startswith((">", "<")) else f"+{shown}"


def optional(value: Any, limits: Limits = (None, None), shown: Callable[[Any], str] | None = None) -> str:
    return "-" if value is None else number(value, limits=limits) if shown is None else shown(value)


def headline(name: str, value: float | None, reason: str, reference: float | None, limits: Limits) -> str:
    """A reading in one line; `reference` is the value of an isotropic cloud."""
    if value is None:
        return f"{visible(name)} undefined: {visible(reason)}"
    isotropic = "" if reference is None else f" (isotropic {number(reference, limits=limits)})"
    return f"{visible(name)} {number(value, limits=limits)}{isotropic}"


def typeset(text: str) -> str:
    def power(match: re.Match[str]) -> str:
        times = "" if match[1] == "1" else f"{match[1]}{_THIN_SPACE}×{_THIN_SPACE}"
        return f"{times}10{match[2].translate(_SUPERSCRIPTS)}"

    return _POWER.sub(power, _MINUS.sub("\u2212", text))


def title(name: str) -> str:
    name = visible(name)
    base, _, last = name.rpartition("_")
    if base and last in _SUFFIXES:
        return title(base) + _SUFFIXES[last]
    spoken = _TITLES.get(name, name.replace("_", " ").strip())
    return spoken[:1].upper() + spoken[1:]


def span(limits: Limits) -> str:
    """`0 to 1`, `at least 0`, `at most 1`, `unbounded`."""
    low, high = (None if limit is None else number(limit) for limit in limits)
    if low is None:
        return "unbounded" if high is None else f"at most {high}"
    return f"at least {low}" if high is None else f"{low} to {high}"


def better(direction: str) -> str:
    return {"higher": "higher is better", "lower": "lower is better"}.get(direction, "neither end is better")


def cut_label(label: str | None) -> str | None:
    return label if label is None or len(label) <= 200 else f"{label[:199]}…"


def plural(n: int, one: str, many: str = "") -> str:
    return one if n == 1 else many or f"{one}s"


def counted(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {plural(n, one, many)}"


def listing(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def decimals(values: Iterable[float], digits: int) -> int:
    """`digits`, or more if one of `values` would print as 0. Values up to 1e-9 are rounding and may print as 0."""
    small = (abs(value) for value in values if 1e-9 < abs(value) < 0.5 / 10**digits)
    return max((digits, *(-math.floor(math.log10(value)) for value in small)))


def percent(share: float, *, precise: bool = False) -> str:
    """In whole percent, or to three digits if `precise`, with more digits where it would round to 0 or 100."""
    if not abs(share) < 1e12:  # nobody reads three hundred digits
        return f"{number(share)} times"
    if precise and f"{100 * share:.3g}" not in ("0", "100"):
        return f"{100 * share:.3g}%"
    for digits in range(4):
        shown = f"{share:.{digits}%}"
        if share in (0.0, 1.0) or float(shown[:-1]) not in (0.0, 100.0):
            return shown
    if share > 0.5:
        return ">100%" if share > 1 else ">99.999%"
    return "<0.001%" if share > 0 else "<0%"
