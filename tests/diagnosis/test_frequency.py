"""Rows by measured frequency: every reading of a bin against a slow loop, correlations against scipy."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uncone
from tests.command import run_command
from tests.planted import healthy, write_model
from uncone import measure
from uncone.diagnosis.bins.frequency import FEWEST_ROWS, bin_edges
from uncone.diagnosis.record import Diagnosis
from uncone.report import to_html

Array = np.ndarray


def _zipf_counts(n: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).poisson(2e4 / np.arange(1, n + 1) ** 1.3)


def _diagnosed(tmp_path: Path, table: Array, counts: Array, head: Array | None = None, **options: bool) -> Diagnosis:
    import torch

    model = write_model(tmp_path / "m", torch.tensor(table), None if head is None else torch.tensor(head))
    return uncone.diagnose(str(model), counts=counts, **options)


def _planted(seed: int = 0, n: int = 2000) -> tuple[Array, Array]:
    """Rows that are shorter and further along one direction the rarer they are; 200 reserved ones near a point."""
    random = np.random.default_rng(seed)
    counts = np.concatenate([np.zeros(200, np.int64), _zipf_counts(n - 200, seed)])
    x = healthy(v=n).numpy()
    rarity = 1 / (1 + counts)
    c = random.standard_normal(64).astype(np.float32)
    c /= np.linalg.norm(c)
    lengths = np.linalg.norm(x, axis=1) * (1 - 0.5 * rarity)
    x = x + 1.5 * rarity[:, None] * c
    x *= (lengths / np.linalg.norm(x, axis=1))[:, None]
    return x.astype(np.float32), counts


@pytest.mark.parametrize("which", ["input", "head"])
def test_every_reading_is_that_of_a_slow_loop(which: str, tmp_path: Path) -> None:
    x, counts = _planted()
    raw = x + 0.3
    d = _diagnosed(tmp_path, raw, counts, raw if which == "head" else None)
    (subject,) = [one for one in d.subjects if one.name == which]
    found = subject.by_count
    w = raw.astype(np.float64)
    mean = w.mean(0)
    if which == "head":
        w = w - mean
    norms = np.linalg.norm(w, axis=1)
    unit, along = w / norms[:, None], w @ (mean / np.linalg.norm(mean)) / norms.mean()
    reserved = np.arange(len(w)) < 200
    directions = np.linalg.eigh(w.T @ w)[1]
    assert sum(one.n for one in found.bins) == len(w) - 200
    assert sum(one.occurrences for one in found.bins) == found.tokens == counts.sum()
    for one in (*found.bins, found.reserved):
        of = reserved if one is found.reserved else (counts >= one.low) & (counts <= one.high) & ~reserved
        assert one.n == of.sum()
        cosines = unit[of] @ unit[of].T
        within = (cosines.sum() - np.trace(cosines)) / (one.n * (one.n - 1))
        z = np.exp(np.concatenate([w[of] @ directions, -(w[of] @ directions)], axis=1)).sum(0)
        assert one.mean_norm == pytest.approx(norms[of].mean(), rel=1e-5)
        assert one.mean_cosine == pytest.approx(within, abs=1e-5)
        assert one.along_common == pytest.approx(along[of].mean(), abs=1e-4)
        assert one.partition_isotropy == pytest.approx(z.min() / z.max(), rel=1e-2)
        if one is not found.reserved:
            assert one.cosine_to_reserved == pytest.approx((unit[of] @ unit[reserved].T).mean(), abs=1e-5)
    assert found.reserved.cosine_to_reserved is None
    furthest = [i for i in np.argsort(-along, kind="stable").tolist() if not reserved[i]]
    assert [one.id for one in found.furthest[:5]] == furthest[:5]


def test_the_partition_of_one_bin_is_that_of_the_measure(tmp_path: Path) -> None:
    """With one bin that holds every row both are I(W) of the matrix."""
    x = healthy(v=500).numpy()
    (one,) = uncone.diagnose(x, counts=np.full(500, 7)).subjects[0].by_count.bins
    assert one.partition_isotropy == pytest.approx(float(measure.partition_isotropy(x)), rel=1e-6)
    assert one.mean_cosine == pytest.approx(float(measure.mean_cosine(x)), abs=1e-9)


def test_what_was_planted_is_said_and_nothing_of_a_healthy_twin(tmp_path: Path) -> None:
    x, counts = _planted()
    found = _diagnosed(tmp_path, x, counts).subjects[0].by_count
    assert found.verdict.startswith("Rarer tokens have rows that are shorter")
    assert "further along the common direction" in found.verdict
    twin = uncone.diagnose(healthy(v=2000).numpy(), counts=counts).subjects[0].by_count
    assert twin.verdict == "A token's frequency shows little about its row: no rank correlation reaches 0.1."


def test_without_reserved_rows_those_never_seen_stand_in() -> None:
    counts = _zipf_counts(2000)
    never = int((counts == 0).sum())
    assert never > 10
    found = uncone.diagnose(healthy(v=2000).numpy(), counts=counts).subjects[0].by_count
    assert found.compared == f"In place of reserved rows: {never:,} rows of tokens never seen in the text."
    assert (found.reserved, found.never_seen, found.bins[0].high) == (None, never, 0)
    assert found.bins[0].cosine_to_reserved is None
    leaning = healthy(v=2000).numpy()
    leaning[:, 0] += 3 / (1 + counts)
    verdict = uncone.diagnose(leaning, counts=counts).subjects[0].by_count.verdict
    assert "nearer to rows never seen (rank correlation 0." in verdict
    assert "reserved" not in verdict
    all_seen = uncone.diagnose(healthy(v=2000).numpy(), counts=counts + 1).subjects[0].by_count
    assert {one.cosine_to_reserved for one in all_seen.bins} == {None}
    assert all_seen.compared.startswith("No rows are reserved")
    assert len(all_seen.correlations) == 2


def test_tokens_never_seen_are_in_no_correlation_and_stand_against_those_that_occur(tmp_path: Path) -> None:
    """Of rows whose length rises with the count but for those never seen, which are the longest."""
    random, n = np.random.default_rng(1), 3000
    counts = np.concatenate([np.zeros(1200, np.int64), 1 + random.geometric(0.3, n - 1200)])
    random.shuffle(counts)
    x = healthy(v=n).numpy()
    lengths = np.where(counts > 0, 1 + 0.1 * np.minimum(counts, 8), 3) * (1 + 0.2 * random.random(n))
    x *= (lengths / np.linalg.norm(x, axis=1))[:, None].astype(np.float32)
    found = uncone.diagnose(x, counts=counts).subjects[0].by_count
    norms, seen = np.linalg.norm(x.astype(np.float64), axis=1), counts > 0
    norm = found.correlations[0]
    assert norm.n == seen.sum()
    assert norm.correlation.value > 0.5 > 0 > np.corrcoef(counts, norms)[0, 1]
    (never,) = (one for one in found.never if one.reading == "norm")
    assert (never.n, never.mean) == (1200, pytest.approx(norms[~seen].mean()))
    error = np.sqrt(norms[~seen].var(ddof=1) / 1200 + norms[seen].var(ddof=1) / 1800)
    low, high = never.difference.interval
    assert never.difference.value == pytest.approx(norms[~seen].mean() - norms[seen].mean())
    assert high - low == pytest.approx(2 * 1.959964 * error, rel=1e-5)
    assert found.verdict.startswith("Rarer tokens have rows that are shorter (rank correlation -0.")
    assert "), over the 1,800 tokens that occur. " in found.verdict
    assert "The 1,200 tokens never seen have rows that are on average longer (3.3 against " in found.verdict
    groups = uncone.diagnose(x, counts=counts).subjects[0].frequency_groups.groups
    assert [group.name for group in groups] == ["frequent", "medium", "rare", "never_seen"]


def test_where_all_tokens_occur_equally_often_nothing_is_said_of_frequency() -> None:
    subject = uncone.diagnose(healthy(v=500).numpy(), counts=np.repeat([0, 3], [100, 400])).subjects[0]
    assert subject.by_count.verdict.startswith("Frequency cannot be compared with the rows: all tokens that occur are")
    assert [group.name for group in subject.frequency_groups.groups] == ["medium", "never_seen"]


class TestRanks:
    """Rows in order of frequency, which have no counts."""

    def _rows(self) -> Array:
        """Longer with the rank up to 300, and shorter from there."""
        x = healthy(v=3000).numpy()
        lengths = 1 + np.minimum(np.arange(1, 3001), 300) / 300 - np.maximum(np.arange(1, 3001) - 300, 0) / 3000
        return x * (lengths / np.linalg.norm(x, axis=1))[:, None].astype(np.float32)

    def test_readings_by_rank(self) -> None:
        x = self._rows()
        subject = uncone.diagnose(x, counts="ranks").subjects[0]
        found, norms = subject.by_count, np.linalg.norm(x.astype(np.float64), axis=1)
        assert [(one.low, one.high) for one in found.bins] == [(1, 31), (32, 99), (100, 316), (317, 999), (1000, 3000)]
        for one in found.bins:
            assert one.n == one.high - one.low + 1
            assert one.mean_norm == pytest.approx(norms[one.low - 1 : one.high].mean())
        assert (found.by, found.tokens, found.never_seen, found.never) == ("rank", None, 0, ())
        assert {one.occurrences for one in found.bins} | {one.count for one in found.furthest} == {None}
        norm = found.correlations[0]
        stats = pytest.importorskip("scipy.stats")
        assert norm.correlation.value == pytest.approx(stats.spearmanr(np.arange(3000), norms).statistic, abs=1e-4)
        assert norm.turn.at == 317
        assert "The norm rises with the rank up to about rank 317 and falls from there" in found.verdict
        assert subject.frequency_groups.by == "rank"
        assert [group.n for group in subject.frequency_groups.groups] == [900, 1500, 600]
        assert subject.picture.counts is None

    def test_a_page_shows_ranks_and_no_counts(self) -> None:
        d = uncone.diagnose(self._rows(), counts="ranks")
        page = to_html(d)
        assert "By rank" in page
        assert "By measured frequency" not in page
        assert "They are grouped by rank, not by count." in page
        assert "rank correlation of the rank with" in page
        assert Diagnosis.from_json(d.to_json()) == d

    def test_a_rarer_token_is_one_of_a_higher_rank(self) -> None:
        """The verdict of ranks is that of counts in the same order."""
        x, counts = _planted()[0][200:], np.arange(1800, 0, -1)
        by_rank, by_count = (uncone.diagnose(x, counts=c).subjects[0].by_count for c in ("ranks", counts))
        assert by_rank.verdict == by_count.verdict != ""
        assert by_rank.correlations[0].correlation.value == -by_count.correlations[0].correlation.value

    def test_rows_that_were_left_out_keep_the_ranks_of_the_others(self) -> None:
        x = healthy(v=500).numpy()
        x[3] = np.nan
        bins = uncone.diagnose(x, counts="ranks", skip_nonfinite=True).subjects[0].by_count.bins
        assert (bins[0].low, bins[0].high, bins[0].n) == (1, 31, 30)

    def test_a_file_of_this_name_is_given_as_a_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("ranks").write_text("id\tcount\n" + "".join(f"{i}\t{i}\n" for i in range(300)))
        x = healthy(v=300).numpy()
        for counts, by in (("ranks", "rank"), ("./ranks", "count"), (Path("ranks"), "count")):
            assert uncone.diagnose(x, counts=counts).subjects[0].by_count.by == by

    def test_the_command_tells_the_word_from_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        np.save("x.npy", self._rows())
        status, out, _ = run_command("diagnose", capsys, "x.npy", "--counts", "ranks")
        assert (status, "By rank" in out) == (0, True)
        status, _, error = run_command("diagnose", capsys, "x.npy", "--counts", "./ranks")
        assert (status, "cannot read ranks: No such file" in error) == (1, True)
        Path("ranks").write_text("id\tcount\n" + "".join(f"{i}\t{i}\n" for i in range(3000)))
        status, out, _ = run_command("diagnose", capsys, "x.npy", "--counts", "./ranks")
        assert (status, "By measured frequency" in out) == (0, True)

    def test_with_a_text_they_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(uncone.InputError, match="expected counts with --text, got ranks: leave --counts out"):
            uncone.diagnose(tmp_path, text=tmp_path / "a.txt", counts="ranks")


def test_no_counts_no_bins_and_zero_rows_are_counted() -> None:
    x, counts = healthy(v=2000).numpy(), _zipf_counts(2000)
    assert uncone.diagnose(x).subjects[0].by_count is None
    x[5:25] = 0
    found = uncone.diagnose(x, counts=counts).subjects[0].by_count
    assert sum(one.n for one in found.bins) == 2000
    assert found.correlations[0].n == (counts > 0).sum()


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=400))
def test_edges_cut_counts_into_bins_that_are_not_small(counts: list[int]) -> None:
    values = np.array(counts)
    edges = bin_edges(values)
    assert edges == sorted(set(edges))
    seen = int((values > 0).sum())
    assert (edges[0] == 0) == (seen < len(values))
    places = np.searchsorted(edges, values, side="right") - 1
    assert places.min() >= 0
    sizes = np.bincount(places[values > 0], minlength=len(edges))[int(edges[0] == 0) :]
    assert not seen or min(sizes.tolist()) >= min(FEWEST_ROWS, seen)


def test_isotropy_of_a_bin_stands_beside_that_of_as_many_rows_drawn() -> None:
    """I(W) falls with the number of rows: of an isotropic cloud both do alike."""
    x = np.random.default_rng(0).standard_normal((6000, 32)).astype(np.float32)
    bins = uncone.diagnose(x, counts=_zipf_counts(6000)).subjects[0].by_count
    read = ((one.n, one.partition_isotropy, one.partition_isotropy_drawn) for one in bins.bins)
    pairs = [one for one in read if None not in one]
    assert len(pairs) > 5
    small, large = min(pairs), max(pairs)
    assert small[1] < large[1] - 0.05
    for n, own, drawn in pairs:
        assert abs(own - drawn) < 3 / np.sqrt(n)


def test_wide_intervals_are_no_answer() -> None:
    random = np.random.default_rng(3)
    seen = set[str]()
    for _ in range(20):
        x, counts = random.standard_normal((60, 8)).astype(np.float32), random.integers(0, 50, 60)
        bins = uncone.diagnose(x, counts=counts).subjects[0].by_count
        within = all(abs(one.correlation.value or 0) < 0.1 for one in bins.correlations)
        told = bins.verdict.startswith("A token's frequency shows little about its row")
        assert told is within or bins.verdict.startswith("The rarer")
        seen.add(bins.verdict.split()[0])
    assert "Too" in seen
    few = uncone.diagnose(x[:40] * np.arange(1, 41)[:, None], counts=np.arange(1, 41)).subjects[0].by_count
    assert few.correlations[0].correlation.value > 0.8
    why = "the larger rank correlations have no interval"
    assert few.verdict == f"Too few rows to say whether a token's frequency shapes its row: {why}."
