"""Rows that are none of a cloud, against a slow look at all rows at once."""

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uncone
from uncone import measure
from uncone.measure import odd_rows
from uncone.measure.odd_rows import GIANT, OddRowFinder
from uncone.moments import row_norms
from uncone.records.parts import OddRows

from ..matrices import F64, Tensor, gaussian
from ..planted import healthy, write_model


def find(x: Tensor, *, block: int = 100, reserved: Tensor | None = None) -> dict[str, OddRows]:
    """What is found in the rows of x (n, D), read `block` at a time."""
    finder, norms, n = OddRowFinder(x.shape[1], len(x)), measure.NormProfile(), len(x)
    marked = np.zeros(n, np.bool_) if reserved is None else reserved.numpy()
    for start in range(0, n, block):
        part = x[start : start + block].numpy()
        lengths = row_norms(part)
        norms.update(lengths, np.arange(start, start + len(part)))
        named = marked[start : start + block]
        finder.add_rows(start, part, lengths == 0, named)
        finder.add_norms(start, lengths, (lengths == 0) | named)
    found = finder.find(uncone.open_rows(x), norms)
    assert len({one.kind for one in found}) == len(found)
    return {one.kind: one for one in found}


def slowly(x: Tensor, reserved: Tensor | None = None) -> dict[str, tuple[int, list[int]]]:
    """By kind the number and the ids of the rows of that kind, in plain loops."""
    rows = x.double().numpy()
    marked = np.zeros(len(rows), bool) if reserved is None else reserved.numpy()
    zero = [i for i, row in enumerate(rows) if not row.any() and not marked[i]]
    kept = [i for i, row in enumerate(rows) if row.any() and not marked[i]]
    first, equal = dict[bytes, int](), list[int]()
    for i in kept:
        if first.setdefault(rows[i].tobytes(), i) != i:
            equal.append(i)
    lengths = np.linalg.norm(rows, axis=1)
    giant = [i for i in kept if lengths[i] >= 10 * np.median(lengths)]
    return {kind: (len(ids), ids) for kind, ids in {"zero": zero, "equal": equal, "giant": giant}.items() if ids}


def planted(seed: int = 0, n: int = 500, dtype: torch.dtype = torch.float32) -> Tensor:
    """A cloud with 3 zero rows, 4 rows equal to earlier ones and 2 giant rows."""
    x = gaussian(n, 12, seed=seed).to(dtype)
    x[[7, 130, 480]] = 0
    x[[50, 210, 211]] = x[3].clone()
    x[400] = x[399].clone()
    x[[20, 333]] *= 50
    return x


@pytest.mark.parametrize("block", [1, 7, 500])
@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.float16, torch.bfloat16])
def test_planted_rows_are_found_in_blocks_of_any_size(block: int, dtype: torch.dtype) -> None:
    stored = planted(dtype=dtype)
    x = stored if dtype == F64 else stored.float()
    assert {kind: (one.n, sorted(one.ids)) for kind, one in find(x, block=block).items()} == slowly(x)


def _with_lengths(n: int, lengths: dict[int, float]) -> Tensor:
    """Unit rows, of which some are longer."""
    x = torch.nn.functional.normalize(gaussian(n, 8), dim=1)
    x[list(lengths)] *= torch.tensor(list(lengths.values()))[:, None]
    return x


def test_the_longest_come_first_with_their_length_in_medians() -> None:
    giant = find(_with_lengths(300, {10: 20.0, 20: 40.0, 30: 11.0}))["giant"]
    assert (giant.n, giant.ids) == (3, (20, 10, 30))
    assert giant.length == pytest.approx(40, rel=0.003)  # the median is known to 0.27%


@pytest.mark.parametrize(("times", "expected"), [(0.99 * GIANT, False), (1.01 * GIANT, True)])
def test_ten_medians_are_giant(times: float, expected: bool) -> None:
    assert GIANT == 10
    assert ("giant" in find(_with_lengths(300, {5: times}))) == expected


def test_more_giant_rows_than_are_listed_are_counted() -> None:
    giant = find(_with_lengths(400, dict(zip(range(100, 130), np.linspace(20, 30, 30).tolist(), strict=True))))["giant"]
    assert (giant.n, giant.ids) == (30, tuple(range(129, 121, -1)))


def test_the_first_eight_are_listed() -> None:
    x = gaussian(100, 4)
    x[10:30] = 0
    x[50:70] = x[0].clone()
    found = find(x, block=13)
    assert (found["zero"].n, found["zero"].ids) == (20, tuple(range(10, 18)))
    assert (found["equal"].n, found["equal"].ids) == (20, tuple(range(50, 58)))


def test_reserved_rows_are_apart() -> None:
    """Zero ones are counted by themselves; equal and giant ones are no fault."""
    x, reserved = planted(), torch.zeros(500, dtype=torch.bool)
    reserved[[7, 480, 20, 210, 211]] = True
    found = find(x, reserved=reserved)
    assert (found["zero"].n, found["zero"].reserved, found["zero"].ids) == (1, 2, (130,))
    assert (found["equal"].n, found["equal"].ids) == (2, (50, 400))
    assert (found["giant"].n, found["giant"].ids) == (1, (333,))
    alone = find(torch.cat([torch.zeros(3, 4), gaussian(50, 4)]), reserved=torch.arange(53) < 3)["zero"]
    assert (alone.n, alone.reserved, alone.ids) == (0, 3, ())


def test_ordinary_clouds_have_none_and_zero_rows_no_median_to_be_longer_than() -> None:
    for x in (gaussian(1000, 16), torch.nn.functional.normalize(gaussian(1000, 16), dim=1)):
        assert find(x) == {}
    x = torch.zeros(20, 4)
    x[3] = 1
    assert {kind: one.n for kind, one in find(x).items()} == {"zero": 19}


def _signs() -> Tensor:
    """All rows of +1 and -1. A sum modulo 2^32 has 34 bits for them: of 2^19 rows it took some for equal."""
    bits = np.arange(2**19, dtype=np.uint32)[:, None] >> np.arange(19, dtype=np.uint32)
    return torch.from_numpy(np.where(bits & 1, np.float32(1), np.float32(-1)))


def _unit() -> Tensor:
    return torch.nn.functional.normalize(gaussian(100_000, 16, seed=4), dim=1)


ALIKE = {
    "float16": lambda: _unit().half().float(),  # half of each of their words is empty, and all have one length
    "bfloat16": lambda: _unit().bfloat16().float(),
    "whole numbers": lambda: torch.cartesian_prod(*[torch.arange(1.0, 8.0)] * 5),  # words that differ in three bits
    "signs": _signs,
}


@pytest.mark.parametrize("kind", ALIKE)
def test_rows_that_are_nearly_alike_are_not_equal_by_chance(kind: str) -> None:
    x = ALIKE[kind]()
    assert kind == "signs" or len({row.tobytes() for row in x.numpy()}) == len(x)
    assert "equal" not in find(x, block=8192)


def test_ids_and_tokens_are_those_of_the_source() -> None:
    """A row that is left out keeps its number: the ids named are those of the file."""
    x = planted()
    x[2] = float("nan")
    by_kind = {one.kind: one for one in uncone.diagnose(x, skip_nonfinite=True).subjects[0].odd_rows}
    assert by_kind["zero"].ids == (7, 130, 480)
    assert by_kind["equal"].ids == (50, 210, 211, 400)
    assert by_kind["zero"].labels == (None, None, None)


@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16])
def test_zero_rows_of_a_head_are_found_though_its_mean_is_removed(tmp_path: Path, dtype: torch.dtype) -> None:
    x = (healthy(0, 600, 16) + 0.3).to(dtype)
    x[[40, 599]] = 0
    x[300] = x[299].clone()
    folder = write_model(tmp_path / "m", x, tokens=[f"t{i}" for i in range(600)])
    for subject in uncone.diagnose(folder).subjects:
        odd = {one.kind: (one.n, one.ids, one.labels) for one in subject.odd_rows}
        assert odd == {"zero": (2, (40, 599), ("t40", "t599")), "equal": (1, (300,), ("t300",))}, subject.name


def test_equal_rows_name_the_row_that_each_equals_and_the_one_that_occurs_most() -> None:
    equal = find(planted(), block=7)["equal"]
    assert (equal.ids, equal.twins) == ((50, 210, 211, 400), (3, 3, 3, 399))
    assert (equal.most, equal.most_label, equal.twin_labels) == ((3, 4), None, (None,) * 4)


def test_twins_have_the_ids_and_tokens_of_the_source(tmp_path: Path) -> None:
    x = healthy(0, 600, 16)
    x[300] = x[299].clone()
    folder = write_model(tmp_path / "m", x, tokens=[f"t{i}" for i in range(600)])
    (equal,) = uncone.diagnose(folder).subjects[0].odd_rows
    assert (equal.twins, equal.twin_labels, equal.most, equal.most_label) == ((299,), ("t299",), (299, 2), "t299")
    x = planted()
    x[2] = float("nan")
    by_kind = {one.kind: one for one in uncone.diagnose(x, skip_nonfinite=True).subjects[0].odd_rows}
    assert (by_kind["equal"].twins, by_kind["equal"].most) == ((3, 3, 3, 399), (3, 4))


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 4), st.integers(1, 70))
def test_any_rows_are_counted_as_a_slow_loop_does(seed: int, n: int, d: int, block: int) -> None:
    """Few values, so that zero and equal rows are common."""
    x = torch.from_numpy(np.random.default_rng(seed).integers(0, 3, (n, d)).astype(np.float32))
    reserved = torch.from_numpy(np.random.default_rng(seed + 1).random(n) < 0.2)
    found, slow = find(x, block=block, reserved=reserved), slowly(x, reserved)
    for kind in ("zero", "equal"):
        one, (count, ids) = found.get(kind, OddRows(kind, 0)), slow.get(kind, (0, []))
        assert (one.n, list(one.ids)) == (count, ids[:8])
    if one := found.get("equal"):
        words = [row.numpy().tobytes() for row in x]
        kept = [i for i in range(n) if x[i].any() and not reserved[i]]
        firsts = {i: next(j for j in kept if words[j] == words[i]) for i in kept}
        assert list(one.twins) == [firsts[i] for i in one.ids]
        times = Counter(firsts.values())
        assert one.most == min(times.items(), key=lambda pair: (-pair[1], pair[0]))


def test_all_equal_rows_of_a_million_are_found() -> None:
    """Beyond 2^19 rows a share was compared, and no note said so."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((2**20 - 1000, 2), dtype=np.float32)
    copies = np.sort(draw.choice(np.arange(1, len(x)), 37, replace=False))
    x[copies] = x[0]
    x[-1] = x[-2] = 7
    equal = find(torch.from_numpy(x), block=8192)["equal"]
    expected = [*copies.tolist(), len(x) - 1]
    assert (equal.n, equal.sampled, list(equal.ids)) == (len(set(expected)), 1, expected[:8])


def test_one_row_many_times_leaves_room_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a row are counted and let go: only different rows are ever too many."""
    monkeypatch.setattr(odd_rows, "MOST_KEYS", 2000)
    x = gaussian(9000, 4)
    x[500:8500] = x[3].clone()
    x[8999] = x[8998].clone()
    equal = find(x, block=256)["equal"]
    assert (equal.n, equal.sampled, equal.ids) == (8001, 1, tuple(range(500, 508)))
    assert (equal.twins, equal.most) == ((3,) * 8, (3, 8001))


@pytest.mark.parametrize("value", [1.0, 0.1, 0.0])
def test_a_head_whose_rows_are_all_equal_has_zero_ones_only_if_stored(tmp_path: Path, value: float) -> None:
    """Without their mean equal rows are zero, and no row of the file is."""
    folder = write_model(tmp_path / "m", torch.full((290, 16), value), tokens=[f"t{i}" for i in range(290)])
    kind, n = ("equal", 289) if value else ("zero", 290)
    for subject in uncone.diagnose(folder).subjects:
        assert [(one.kind, one.n) for one in subject.odd_rows] == [(kind, n)], subject.name
        assert any(f.summary.startswith(f"{n} rows are {kind}") for f in subject.findings)


def test_small_rows_of_a_head_are_neither_equal_nor_zero_without_its_mean(tmp_path: Path) -> None:
    """Half of the rows are small, and less than a digit of the mean: without it they would all be one row."""
    x = healthy(0, 400, 16)
    x[::2] *= 1e-9
    x[1::2] += 1000
    for subject in uncone.diagnose(write_model(tmp_path / "m", x, tokens=[f"t{i}" for i in range(400)])).subjects:
        assert [one for one in subject.odd_rows if one.kind in ("equal", "zero")] == [], subject.name


def test_a_share_of_the_rows_is_said_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(odd_rows, "MOST_KEYS", 200)
    x = gaussian(1000, 4)
    (note,) = (note for note in uncone.diagnose(x).subjects[0].notes if "was compared" in note)
    assert note.startswith("1 row in 8, ")
    assert "The number of equal rows is an estimate" in note
    x[500:] = x[:500].clone()
    subject = uncone.diagnose(x).subjects[0]
    (equal,) = (one for one in subject.odd_rows if one.kind == "equal")
    assert equal.sampled > 1
    assert any(f.summary.startswith(f"About {equal.n} rows") for f in subject.findings)


def repeated(seed: int, n: int = 4000) -> npt.NDArray[np.float32]:
    """Rows of which many are there two to five times."""
    draw = np.random.default_rng(seed)
    distinct = draw.standard_normal((n, 6), dtype=np.float32)
    return draw.permutation(np.repeat(distinct, draw.choice([1, 1, 1, 2, 3, 5], n), axis=0))


def test_of_more_rows_than_are_kept_the_number_of_equal_ones_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bias: over 40 clouds the mean of estimate less count is within three of its standard errors."""
    monkeypatch.setattr(odd_rows, "MOST_KEYS", 2000)
    off = []
    for seed in range(40):
        x = repeated(seed)
        counted = Counter(row.tobytes() for row in x)
        true, equal = len(x) - len(counted), find(torch.from_numpy(x), block=512)["equal"]
        assert equal.sampled in (2, 4, 8, 16)
        assert 0.5 * true < equal.n < 1.7 * true
        assert all(counted[x[i].tobytes()] > 1 for i in equal.ids)
        assert all((x[i] == x[twin]).all() and twin < i for i, twin in zip(equal.ids, equal.twins, strict=True))
        assert equal.most
        assert counted[x[equal.most[0]].tobytes()] == equal.most[1]
        off.append(equal.n - true)
    assert abs(np.mean(off)) < 3 * np.std(off) / len(off) ** 0.5


@pytest.mark.parametrize("most", [1, 16, 500, 10_000])
def test_no_more_keys_are_kept_than_may_be(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(odd_rows, "MOST_KEYS", most)
    x = gaussian(3000, 4)
    finder = OddRowFinder(4, 3000)
    for start in range(0, 3000, 256):
        part = x[start : start + 256].numpy()
        none = np.zeros(len(part), np.bool_)
        finder.add_rows(start, part, none, none)
        assert len(finder._keys) == len(finder._key_rows) == min(most, 3000)
    assert finder.every > 1 if most < 3000 else finder.every == 1
    assert bool(finder.notes) == (most < 3000)
