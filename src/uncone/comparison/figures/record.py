"""The figures of a comparison: bins of ids, spectra and norms."""

from collections.abc import Iterator, Sequence

from uncone.diagnosis.record import Subject
from uncone.records.blocks import Block, Figure, Folded, Table
from uncone.records.charts import READINGS, bin_charts, bins_table, norms_compared, spectra_compared
from uncone.records.layout import shown


def compared_figures(sides: Sequence[tuple[str, int, Subject]], names: Sequence[str]) -> Iterator[Block]:
    """The curves of all diagnoses over each other; `sides` have a letter and a place."""
    legend = tuple((f"d{place}", f"{letter} {names[place]}") for letter, place, _ in sides)
    groups = [(letter, place, side.groups) for letter, place, side in sides]
    binned = [(letter, f"d{place}", of.bins) for letter, place, of in groups if of and of.bins]
    called = sorted((of for *_, of in groups if of), key=lambda of: (not of.reserved_by_name, of.named))
    panels = tuple(bin_charts(binned, called=called[0].called)) if binned else ()
    if panels:
        first, last = min(bins[0].start for *_, bins in binned), max(bins[-1].stop for *_, bins in binned) - 1
        spark = f"By row id, from {first:,} to {last:,}, one scale per reading:" if len(binned) > 1 else ""
        yield Figure("By row id", panels, "Dashed in grey: the value for an isotropic cloud.", legend, spark)
        letters, every = tuple(letter for letter, _, _ in binned), [bins for _, _, bins in binned]
        numbers = ((tuple(bins_table(every, place)), reading) for place, reading in enumerate(READINGS))
        tables = (Table(("ids", *letters), rows, letters, reading[1]) for rows, reading in numbers)
        yield Folded("The numbers behind this figure", shown(tables))
    lettered = [(letter, f"d{place}", side) for letter, place, side in sides]
    shape = [(letter, style, side.spectrum) for letter, style, side in lettered if side.spectrum is not None]
    norms = [(letter, style, side.norms) for letter, style, side in lettered if side.norms is not None]
    shapes = (*(spectra_compared(shape, centered=one) for one in (False, True)), norms_compared(norms))
    caption = (
        "The flatter a spectrum, the more even the cloud. Dotted: isotropic, with the size and trace of the first. "
        "Norms are shares of the rows of each diagnosis, whatever their number."
    )
    yield Figure("Spectra and norms", tuple(chart for chart in shapes if chart), caption, legend)
