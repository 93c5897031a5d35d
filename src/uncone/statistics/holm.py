from collections.abc import Sequence


def holm(p: Sequence[float]) -> list[float]:
    """The chances `p` corrected for their number (Holm 1979), in their order."""
    order, corrected, largest = sorted(range(len(p)), key=lambda i: p[i]), [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        corrected[i] = largest
    return corrected
