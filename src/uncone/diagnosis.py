"""`diagnose`: how degenerate is a model's token table and its head, why, and what to do next.

The module is not called `diagnose`: importing it would then hide the function of that name in the package.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

import uncone
from uncone import explain, measure
from uncone.errors import InputError, UndefinedMeasure
from uncone.explain import TokenReadings
from uncone.measure import GroupMoments, NormProfile, PairSums, Reserved
from uncone.moments import Moments, NotFiniteError, row_norms
from uncone.records import Diagnosis, Group, Groups, Measurement, Picture, Spectrum, Subject
from uncone.rows import CenteredRows, Rows, nonfinite_error
from uncone.sources import open_subjects

Tensor = torch.Tensor
Progress = Callable[[str, int, int], None]
Measure = Callable[[Moments], Measurement]

MEASURES: tuple[tuple[str, Measure], ...] = (
    ("mean_cosine", measure.mean_cosine),
    ("mean_shift", measure.mean_shift),
    ("isoscore", measure.isoscore),
    ("isoscore_debiased", partial(measure.isoscore, debiased=True)),
    ("isoscore_star", measure.isoscore_star),
    ("participation_ratio", measure.participation_ratio),
    ("participation_ratio_debiased", partial(measure.participation_ratio, debiased=True)),
    ("effective_rank", measure.effective_rank),
    ("rankme", measure.rankme),
    ("stable_rank", measure.stable_rank),
    ("stable_rank_centered", partial(measure.stable_rank, centered=True)),
    ("anisotropy_1", measure.anisotropy),
    ("anisotropy_1_raw", partial(measure.anisotropy, centered=False)),
    ("singular_entropy", measure.singular_entropy),
    ("singular_entropy_raw", partial(measure.singular_entropy, centered=False)),
    ("condition_number", measure.condition_number),
    ("rogue_dimensions", measure.rogue_dimensions),
    ("dominant_dimension", measure.dominant_dimension),
    ("outlier_dimensions", measure.outlier_dimensions),
    ("gaussian_isotropy", measure.gaussian_isotropy),
    ("uniformity", measure.uniformity),
)
OF_A_HEAD = tuple(
    (name, function)
    for name, function in MEASURES
    if name not in ("mean_shift", "stable_rank_centered", "anisotropy_1_raw", "singular_entropy_raw", "outlier_dimensions")
)
"""A head is read with its mean removed: no shift and no means are left, and what is raw and what is centred is the same."""
OF_THE_GAUGE: tuple[tuple[str, Measure], ...] = (
    ("mean_cosine", measure.mean_cosine),
    ("mean_shift", measure.mean_shift),
    ("stable_rank", measure.stable_rank),
    ("anisotropy_1_raw", partial(measure.anisotropy, centered=False)),
    ("outlier_dimensions", measure.outlier_dimensions),
    ("gaussian_isotropy", measure.gaussian_isotropy),
)
"""Raw readings of a head. Subtracting one vector from all of its rows changes them, and changes no probability."""
OF_NEIGHBOURS = measure.intrinsic_dimension.NEIGHBOURS
"""One search serves both intrinsic dimensions."""
MOST_BINS = 200


def diagnose(
    spec: Any,
    *,
    counts: Any = None,
    neighbours: bool = False,
    skip_nonfinite: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Diagnosis:
    """Say how degenerate the rows of `spec` are, why, and what to do next.

    Args:
        spec: a model directory (its token table and output head), or anything `open_rows` takes.
        counts: how often each token occurs in some text: a file (a table `id token count` or `token count`, or `.npy`), or
            a tensor or array (N,). Without it tokens are ranked by their ids.
        neighbours: also measure what takes the nearest neighbours of every row (`two_nn`, `levina_bickel`, `hubness` and
            `uniformity_exact`): about 1.5 N^2 D multiply-adds, on the CPU.
        skip_nonfinite: leave out rows with NaN or inf instead of refusing them.
        device: where products are computed, a torch device.
        progress: called with (what is done, rows done, rows in all); the last is 0 where rows are not what is counted.

    Returns:
        A `Diagnosis`: the verdict in one sentence, and for each matrix the measurements, findings and picture.

    Raises:
        InputError: the source cannot be opened or holds rows that are not finite, or counts do not fit it.
        UnsupportedModel: the table or the head cannot be found in the model's files.
    """
    _check_device(device)
    if progress is not None:
        progress("opening", 0, 0)
    found = open_subjects(spec, skip_nonfinite=skip_nonfinite, progress=progress)
    subjects = tuple(
        _Examination(name, rows, device, progress, explain.role_of(name, rows, found.rows), counts, neighbours).run()
        for name, rows in found.rows
    )
    return Diagnosis(
        name=found.name, verdict=explain.give_verdict(subjects), subjects=subjects, notes=found.notes,
        versions={"uncone": uncone.__version__, "torch": str(torch.__version__)},
    )  # fmt: skip


@dataclass(frozen=True)
class _Sums:
    """What one pass over the rows leaves."""

    moments: Moments
    norms: NormProfile
    bin_size: int
    bins: list[Moments]
    reserved: Reserved
    reserved_sums: Moments
    reserved_in_bin: list[tuple[int, int]]
    """For each bin: how many of its rows are reserved, and how many of those are not zero."""
    stop: int
    """One more than the last id."""


class _Examination:
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
        return self._conclude(self._rows, sums, (*measurements, *self._second_pass(self._rows, sums)), seen, tokens)

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
        picture = explain.draw_picture(self._rows, raw, self._reserved, self._tick("drawing"), counts=self._counts)
        return _spectrum(raw), picture

    def _second_pass(self, rows: Rows, sums: _Sums) -> tuple[Measurement, ...]:
        coupling = _read("norm_id_correlation", lambda m: sums.norms.id_correlation(m.d), sums.moments)
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
            _read("two_nn", lambda m: measure.two_nn(rows, m, neighbours=shared()), m),
            _read("levina_bickel", lambda m: measure.levina_bickel(rows, m, neighbours=shared()), m),
            _read("hubness", lambda m: measure.hubness(rows, m, progress=hubs), m),
            _read("uniformity_exact", lambda m: measure.uniformity_exact(rows, m, progress=pairs), m),
        )

    def _read_tokens(self, rows: Rows, sums: _Sums, pairs: PairSums) -> TokenReadings:
        tick = self._tick("looking for untrained rows")
        return self._tokens.read(rows, sums.moments, pairs, tick)

    def _conclude(
        self,
        rows: Rows,
        sums: _Sums,
        measurements: tuple[Measurement, ...],
        seen: tuple[Spectrum | None, Picture | None],
        tokens: TokenReadings,
    ) -> Subject:
        groups = _groups(sums)
        findings = explain.find(measurements, groups, head=self._head, under_trained=tokens.under_trained)
        return Subject(
            name=self._name, source="/".join(Path(rows.name).parts[-2:]), n=rows.shape[0], d=rows.shape[1], dtype=rows.dtype,
            measurements=measurements, findings=findings, groups=groups,
            spectrum=seen[0], norms=sums.norms.record(), picture=seen[1], left_out=len(rows.left_out),
            notes=self._notes, frequency_groups=tokens.groups, under_trained=tokens.under_trained,
        )  # fmt: skip

    def _sum(self, rows: Rows) -> _Sums:
        """One pass: moments, norms, bins of ids, and the reserved rows."""
        n, d = rows.shape
        ids = torch.arange(n) if rows.ids is None else rows.ids
        reserved = self._reserved
        bin_size = _bin_size(int(ids[-1]) + 1)
        is_reserved = torch.zeros(n, dtype=torch.bool)
        is_reserved[reserved.indices] = True
        moments, profile = Moments(d, unit_second=True, device=self._device), NormProfile()
        bins = GroupMoments(int(ids[-1]) // bin_size + 1, d, device=self._device)
        special = GroupMoments(1, d, device=self._device)
        bins.work_with(moments)
        special.work_with(moments)
        in_bin, directed = torch.zeros((2, int(ids[-1]) // bin_size + 1), dtype=torch.int64)
        tick, done = self._tick("summing"), 0
        for block in rows.blocks():
            part = slice(done, done + len(block))
            try:
                moments.update(block)
            except NotFiniteError:
                raise nonfinite_error(rows) from None
            norms = row_norms(block)
            profile.update(norms, ids[part])
            self._tokens.update(block, norms)
            in_bin += torch.bincount(ids[part][is_reserved[part]] // bin_size, minlength=len(in_bin))
            directed += torch.bincount(ids[part][is_reserved[part] & (norms > 0)] // bin_size, minlength=len(in_bin))
            bins.update(block, ids[part] // bin_size)
            special.update(block, is_reserved[part].long() - 1)
            done += len(block)
            del block
            tick(done)
        return _Sums(
            moments.finish(), profile, bin_size, bins.finish(), reserved, special.finish()[0],
            list(zip(in_bin.tolist(), directed.tolist(), strict=True)), int(ids[-1]) + 1,
        )  # fmt: skip

    def _partition(self, rows: Rows, moments: Moments) -> Measurement:
        moments.directions()
        moments.second = moments.unit_second = None  # the directions are all that the second pass needs
        tick = self._tick("partition function")
        return _read(
            "partition_isotropy", lambda m: measure.partition_isotropy(rows, m, device=self._device, progress=tick), moments
        )

    def _read_all(self, measures: tuple[tuple[str, Measure], ...], moments: Moments) -> tuple[Measurement, ...]:
        if self._progress is not None:
            self._progress(f"{self._name}: finding eigenvalues", 0, 0)
        return tuple(_read(name, function, moments) for name, function in measures)

    def _tick(self, what: str) -> Callable[[int], None]:
        progress, total = self._progress, self._rows.shape[0]
        if progress is None:
            return lambda done: None
        return lambda done: progress(f"{self._name}: {what}", done, total)


def _read(name: str, function: Measure, moments: Moments) -> Measurement:
    """The measurement, or a record of why there is none: absence is a result and is shown."""
    try:
        return function(moments)
    except UndefinedMeasure as error:
        return Measurement(name, None, reason=str(error), n=moments.n, d=moments.d)


def _groups(sums: _Sums) -> Groups:
    reserved = sums.reserved_sums
    special = _group(sums.reserved.description, 0, 0, reserved, None, (len(sums.reserved.indices), 0))
    bins = []
    for k, (m, shared) in enumerate(zip(sums.bins, sums.reserved_in_bin, strict=True)):
        start, stop = k * sums.bin_size, (k + 1) * sums.bin_size
        if m.n == 0:
            continue
        stop = min(stop, sums.stop)
        bins.append(_group(f"ids {start:,} to {stop - 1:,}", start, stop, m, reserved, shared))
    return Groups(sums.bin_size, sums.reserved.description, special, tuple(bins), sums.reserved.by_name)


def _group(name: str, start: int, stop: int, m: Moments, reserved: Moments | None, shared: tuple[int, int]) -> Group:
    mean = m.mean_norm()
    spread = max(0.0, m.norm_square_sum / m.weight - mean**2) ** 0.5
    to_reserved = None if reserved is None else _value(lambda: measure.cosine_between(reserved, m, shared=shared[1]))
    return Group(
        name, start, stop, m.n, m.zero_rows, mean, spread, _value(lambda: measure.mean_cosine(m)), to_reserved, shared[0]
    )


def _value(function: Callable[[], Measurement]) -> float | None:
    try:
        return float(function())
    except UndefinedMeasure:
        return None


def _spectrum(moments: Moments) -> Spectrum:
    centered = moments.spectrum(centered=True)
    isotropic = measure.marchenko_pastur(moments.effective_n - 1, moments.d) * float(centered.mean())
    return Spectrum(tuple(moments.spectrum(centered=False).tolist()), tuple(centered.tolist()), tuple(isotropic.tolist()))


def _bin_size(n: int) -> int:
    """1,000 ids a bin, or the next 2, 5, 10, ... thousand that leaves at most 200 bins."""
    size, step = 1000, 0
    while n > MOST_BINS * size:
        size = size * 5 // 2 if step % 3 == 1 else size * 2
        step += 1
    return size


def _check_device(device: str) -> None:
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"expected a device that torch can compute on in float64, got {device!r} ({reason}): use cpu or cuda"
        ) from error
