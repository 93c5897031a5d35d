"""One matrix, from its rows to all that a diagnosis says of it."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from uncone import explain, measure
from uncone.explain.measures import MEASURES, OF_A_HEAD, OF_NEIGHBOURS, OF_THE_GAUGE, Measure
from uncone.explain.sums import Sums, groups_of, sum_rows
from uncone.measure.reading import read
from uncone.moments import Moments
from uncone.moments.sums import products_bytes
from uncone.records import Measurement, Picture, Spectrum, Subject
from uncone.rows import CenteredRows, Rows

_WORTH_SAYING = 10**9
Progress = Callable[[str, int, int], None]


class Examination:
    """One matrix, from rows to the `Subject`."""

    def __init__(
        self, name: str, rows: Rows, device: str, progress: Progress | None, role: explain.Role, counts: Any,
        neighbours: bool = False,
    ) -> None:  # fmt: skip
        self._name, self._rows, self._device, self._progress = name, rows, device, progress
        self._head, self._neighbours = name == "head", neighbours
        self._reserved = measure.reserved_rows(rows.labels, rows.shape[0])
        self._counts, self._notes = explain.counts_of(counts, rows)
        self._tokens = explain.TokenReader(rows, role, self._counts)

    def run(self) -> Subject:
        """Read the rows twice (a head four times: raw, then centred), and draw the conclusions."""
        rows, without_effect, seen = self._rows, tuple[Measurement, ...](), None
        if self._head:
            raw = Moments.of(rows, device=self._device, progress=self._tick("summing the raw rows"))
            without_effect, seen = self._read_all(OF_THE_GAUGE, raw), self._see(raw)
            without_effect = (*without_effect, self._partition(rows, raw))
            rows = CenteredRows(rows, raw.mean())
            del raw
        sums = self._sum(rows)
        m = sums.moments
        measurements = self._read_all(OF_A_HEAD if self._head else MEASURES, m)
        pairs = measure.PairSums.of(m)
        m.unit_second = None  # read; the pages and the partition function want its memory
        spectrum, picture = self._see(m) if seen is None else seen
        tokens = self._tokens.read(rows, m, pairs, self._tick("looking for untrained rows"))
        coupling = read("norm_id_correlation", lambda m: sums.norms.id_correlation(m.d), m)
        measurements = (*measurements, self._partition(rows, m), coupling, *self._from_neighbours(rows, m))
        if self._head:
            measurements = tuple(replace(one, centered=True) for one in measurements)
        groups = groups_of(sums)
        findings = explain.find(measurements, groups, head=self._head, under_trained=tokens.under_trained)
        return Subject(
            name=self._name, source="/".join(Path(rows.name).parts[-2:]), n=rows.shape[0], d=rows.shape[1], dtype=rows.dtype,
            measurements=measurements, without_effect=without_effect, findings=findings, groups=groups, spectrum=spectrum,
            norms=sums.norms.record(), picture=picture, left_out=len(rows.left_out), notes=self._notes,
            frequency_groups=tokens.groups, under_trained=tokens.under_trained,
        )  # fmt: skip

    def _see(self, raw: Moments) -> tuple[Spectrum | None, Picture | None]:
        """What is drawn from the raw moments."""
        if raw.n < 2:
            return None, None
        tick = self._tick("drawing")
        picture = explain.draw_picture(self._rows, raw, self._reserved, tick, counts=self._counts)
        centered = raw.spectrum(centered=True)
        isotropic = measure.marchenko_pastur(raw.effective_n - 1, raw.d) * float(centered.mean())
        spectra = (raw.spectrum(centered=False), centered, isotropic)
        return Spectrum(*(tuple(values.tolist()) for values in spectra)), picture

    def _from_neighbours(self, rows: Rows, m: Moments) -> tuple[Measurement, ...]:
        if not self._neighbours:
            return ()
        hubs, pairs = self._tick("finding hubs"), self._tick("pairing directions")

        @cache
        def shared() -> measure.Neighbours:
            tick = self._tick("finding neighbours")
            return measure.nearest_neighbours(rows, OF_NEIGHBOURS, m, distinct=True, progress=tick)

        return (
            read("two_nn", lambda m: measure.two_nn(rows, m, neighbours=shared()), m),
            read("levina_bickel", lambda m: measure.levina_bickel(rows, m, neighbours=shared()), m),
            read("hubness", lambda m: measure.hubness(rows, m, progress=hubs), m),
            read("uniformity_exact", lambda m: measure.uniformity_exact(rows, m, progress=pairs), m),
        )

    def _sum(self, rows: Rows) -> Sums:
        size, doing = products_bytes(rows.shape[1]), "summing"
        if size >= _WORTH_SAYING:
            doing += f", with {size / 1e9:.0f} GB for the products of {rows.shape[1]:,} columns"
        update, tick = self._tokens.update, self._tick(doing)
        return sum_rows(rows, self._reserved, device=self._device, update=update, progress=tick)

    def _partition(self, rows: Rows, m: Moments) -> Measurement:
        m.directions()
        m.second = m.unit_second = None  # the directions are all that the second pass needs
        tick = self._tick("partition function")
        of_rows = partial(measure.partition_isotropy, rows, device=self._device, progress=tick)
        return read("partition_isotropy", of_rows, m)

    def _read_all(self, measures: tuple[tuple[str, Measure], ...], m: Moments) -> tuple[Measurement, ...]:
        if self._progress is not None:
            self._progress(f"{self._name}: finding eigenvalues", 0, 0)
        return tuple(read(name, function, m) for name, function in measures)

    def _tick(self, doing: str) -> Callable[[int], None]:
        progress, total = self._progress, self._rows.shape[0]
        if progress is None:
            return lambda done: None
        return lambda done: progress(f"{self._name}: {doing}", done, total)
