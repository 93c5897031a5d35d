"""One matrix, from its rows to all that a diagnosis says of it."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from uncone import explain, measure
from uncone.explain import TokenReadings
from uncone.explain.bins import groups_of
from uncone.explain.measures import MEASURES, OF_A_HEAD, OF_NEIGHBOURS, OF_THE_GAUGE, Measure
from uncone.explain.sums import Sums, sum_rows
from uncone.measure import PairSums
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
        self,
        name: str,
        rows: Rows,
        device: str,
        progress: Progress | None,
        role: explain.Role,
        counts: Any,
        neighbours: bool = False,
    ) -> None:
        self._name, self._rows, self._device, self._progress = name, rows, device, progress
        self._head, self._neighbours = name == "head", neighbours
        self._reserved = measure.reserved_rows(rows.labels, rows.shape[0])
        self._counts, self._notes = explain.counts_of(counts, rows)
        self._tokens = explain.TokenReader(rows, role, self._counts)

    def run(self) -> Subject:
        """Read the rows twice (a head four times: raw, then centred), and draw the conclusions."""
        if self._head:
            return self._run_head()
        sums = self._sum(self._rows)
        measurements = self._read_all(MEASURES, sums.moments)
        pairs = measure.PairSums.of(sums.moments)
        sums.moments.unit_second = None  # read; the pages and the partition function want its memory
        seen = self._see(sums.moments)
        tokens = self._read_tokens(self._rows, sums, pairs)
        return self._conclude(
            self._rows, sums, (*measurements, *self._second_pass(self._rows, sums)), seen, tokens
        )

    def _run_head(self) -> Subject:
        raw = Moments.of(self._rows, device=self._device, progress=self._tick("summing the raw rows"))
        without_effect, seen = self._read_all(OF_THE_GAUGE, raw), self._see(raw)
        without_effect = (*without_effect, self._partition(self._rows, raw))
        rows = CenteredRows(self._rows, raw.mean())
        del raw
        sums = self._sum(rows)
        measurements = self._read_all(OF_A_HEAD, sums.moments)
        tokens = self._read_tokens(rows, sums, measure.PairSums.of(sums.moments))
        measurements = (*measurements, *self._second_pass(rows, sums))
        measurements = tuple(replace(m, centered=True) for m in measurements)
        return replace(self._conclude(rows, sums, measurements, seen, tokens), without_effect=without_effect)

    def _see(self, raw: Moments) -> tuple[Spectrum | None, Picture | None]:
        """What is drawn from the raw moments."""
        if raw.n < 2:
            return None, None
        picture = explain.draw_picture(
            self._rows, raw, self._reserved, self._tick("drawing"), counts=self._counts
        )
        return _spectrum(raw), picture

    def _second_pass(self, rows: Rows, sums: Sums) -> tuple[Measurement, ...]:
        coupling = read("norm_id_correlation", lambda m: sums.norms.id_correlation(m.d), sums.moments)
        return self._partition(rows, sums.moments), coupling, *self._from_neighbours(rows, sums.moments)

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

    def _read_tokens(self, rows: Rows, sums: Sums, pairs: PairSums) -> TokenReadings:
        tick = self._tick("looking for untrained rows")
        return self._tokens.read(rows, sums.moments, pairs, tick)

    def _conclude(
        self,
        rows: Rows,
        sums: Sums,
        measurements: tuple[Measurement, ...],
        seen: tuple[Spectrum | None, Picture | None],
        tokens: TokenReadings,
    ) -> Subject:
        groups = groups_of(sums)
        findings = explain.find(measurements, groups, head=self._head, under_trained=tokens.under_trained)
        return Subject(
            name=self._name, source="/".join(Path(rows.name).parts[-2:]), n=rows.shape[0], d=rows.shape[1], dtype=rows.dtype,
            measurements=measurements, findings=findings, groups=groups,
            spectrum=seen[0], norms=sums.norms.record(), picture=seen[1], left_out=len(rows.left_out),
            notes=self._notes, frequency_groups=tokens.groups, under_trained=tokens.under_trained,
        )  # fmt: skip

    def _sum(self, rows: Rows) -> Sums:
        size = products_bytes(rows.shape[1])
        what = (
            "summing"
            if size < _WORTH_SAYING
            else f"summing, with {size / 1e9:.0f} GB for the products of {rows.shape[1]:,} columns"
        )
        return sum_rows(
            rows, self._reserved, device=self._device, update=self._tokens.update, progress=self._tick(what)
        )

    def _partition(self, rows: Rows, moments: Moments) -> Measurement:
        moments.directions()
        moments.second = moments.unit_second = None  # the directions are all that the second pass needs
        tick = self._tick("partition function")
        return read(
            "partition_isotropy",
            lambda m: measure.partition_isotropy(rows, m, device=self._device, progress=tick),
            moments,
        )

    def _read_all(
        self, measures: tuple[tuple[str, Measure], ...], moments: Moments
    ) -> tuple[Measurement, ...]:
        if self._progress is not None:
            self._progress(f"{self._name}: finding eigenvalues", 0, 0)
        return tuple(read(name, function, moments) for name, function in measures)

    def _tick(self, what: str) -> Callable[[int], None]:
        progress, total = self._progress, self._rows.shape[0]
        if progress is None:
            return lambda done: None
        return lambda done: progress(f"{self._name}: {what}", done, total)


def _spectrum(moments: Moments) -> Spectrum:
    centered = moments.spectrum(centered=True)
    isotropic = measure.marchenko_pastur(moments.effective_n - 1, moments.d) * float(centered.mean())
    return Spectrum(
        tuple(moments.spectrum(centered=False).tolist()), tuple(centered.tolist()), tuple(isotropic.tolist())
    )
