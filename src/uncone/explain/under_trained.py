"""The finding that tokens were hardly trained."""

from uncone.records import Finding, UnderTrained
from uncone.records.wording import counted

MANY = 0.01
"""Land & Bartolo 2024 confirm 0.1 to 1 % of most vocabularies: beyond, it is no longer usual."""
_SHOWN = 8


def find_under_trained(under_trained: UnderTrained | None, *, tail_is_named: bool) -> list[Finding]:
    """A note that names tokens, or a warning where there are many and no finding about the tail has named them yet."""
    if under_trained is None or not under_trained.found:
        return []
    u, found = under_trained, under_trained.found
    first = [repr(token.token) for token in u.tokens if not token.expected and token.token is not None][
        :_SHOWN
    ]
    evidence = [
        f"{found:,} of {u.tested:,} rows, at a false-discovery rate of {100 * u.rate:g}%: {u.definition}"
    ]
    if u.known:
        evidence.append(
            f"of the {counted(u.known, 'row')} known to be unused, {counted(u.known_found, 'looks', 'look')} it by the same measure"
        )
    if first:
        evidence.append(f"first: {', '.join(first)}")
    one = found == 1
    return [
        Finding(
            "under_trained_tokens",
            "warning" if found > MANY * u.tested and not tail_is_named else "note",
            f"{found:,} token{' looks' if one else 's look'} as if no text had trained {'it' if one else 'them'}, though not reserved.",
            tuple(evidence),
            "Try them in a prompt before use; map input that holds them to other tokens, or re-initialise their rows from their sub-tokens.",
        )
    ]
