"""Near-duplicates against a slow loop, on clean clouds, and on real vectors and edited texts."""

import json
import lzma
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uncone import measure
from uncone.measure.near_duplicates import BY_CHANCE, NEAR, near_duplicates
from uncone.records.parts import NearDuplicates
from uncone.rows import SelectedRows, as_rows

SHARED = (Path(__file__).parent / "../../../shared/data").resolve()


def found_in(x: Any, **search: Any) -> NearDuplicates:
    rows = as_rows(x)
    found = near_duplicates(rows, measure.nearest_neighbours(rows, 10, metric="cosine", **search))
    assert found
    return found


def slow(x: np.ndarray) -> tuple[float, float, float, dict[tuple[int, int], float]]:
    """Bar, usual cosine, share of the distance, and the cosine of each pair within the bar, by all distances."""
    u = x.astype(np.float64) / np.linalg.norm(x.astype(np.float64), axis=1)[:, None]
    far = np.linalg.norm(u[:, None] - u[None], axis=2)
    sorted_ = np.sort(far + np.diag([np.inf] * len(x)), axis=1)
    dimension = math.log(2) / np.median([math.log(row[9] / row[4]) for row in sorted_])
    usual = float(np.median(sorted_[:, 9]))
    share = min(NEAR, (BY_CHANCE / (10 * len(x))) ** (1 / dimension))
    pairs = {(j, i): far[i, j] for i in range(len(x)) for j in range(i) if 1e-12 < far[i, j] <= share * usual}
    cosines = {pair: 1 - distance**2 / 2 for pair, distance in sorted(pairs.items(), key=lambda one: one[1])}
    return 1 - (share * usual) ** 2 / 2, 1 - usual**2 / 2, share, cosines


def planted(d: int = 24, n: int = 300) -> np.ndarray:
    """A cloud where rows 200 to 204 follow rows 10 to 14 ever less closely, and 250 and 251 follow row 200."""
    draw = np.random.default_rng(3)
    x = draw.standard_normal((n, d))
    for k in range(5):
        x[200 + k] = x[10 + k] + 0.01 * 3**k * draw.standard_normal(d)
    x[250:252] = x[200] + 0.001 * draw.standard_normal((2, d))
    return x


@pytest.mark.parametrize("d", [4, 24])
def test_pairs_are_those_of_a_slow_loop(d: int) -> None:
    x = planted(d)
    found, (bar, usual, share, pairs) = found_in(x), slow(x)
    assert (found.bar, found.usual, found.share) == pytest.approx((bar, usual, share), abs=1e-12)
    assert (share == NEAR) == (d == 24)
    assert found.n == len({i for pair in pairs for i in pair}) > 4
    assert list(zip(found.twins, found.ids, strict=True)) == list(pairs)[:8]
    assert found.cosines == pytest.approx(list(pairs.values())[:8], abs=1e-12)
    assert found.largest == (
        (10, 4) if d == 24 else (200, 3)
    )  # 200, 250 and 251, and row 10 where it is within the bar


def test_equal_rows_are_none() -> None:
    """They are found without a search; a row near to several equal ones is near to each."""
    x = planted()
    x[100:104] = x[99]
    first = found_in(x)
    assert not set(range(99, 104)) & {*first.ids, *first.twins}
    x[104] = x[99] + 1e-6
    second = found_in(x)
    assert second.n == first.n + 6
    assert {(104, i) for i in range(99, 104)} <= set(zip(second.ids, second.twins, strict=True))


def test_rows_that_differ_in_their_length_alone_are_none() -> None:
    x = planted()
    first = found_in(x)
    x[100] = 4 * x[99]
    assert found_in(x).n == first.n


def test_without_a_usual_distance_nothing_is_found() -> None:
    x = np.repeat(np.random.default_rng(0).standard_normal((5, 8)), 12, axis=0)
    rows = as_rows(x)
    assert near_duplicates(rows, measure.nearest_neighbours(rows, 10, metric="cosine")) is None


def test_ids_and_labels_are_those_of_the_source() -> None:
    rows = as_rows(planted())
    rows.load_labels = lambda: [f"row {i}" for i in range(300)]
    kept = SelectedRows(rows, np.delete(np.arange(300), [5, 7]))
    found = near_duplicates(kept, measure.nearest_neighbours(kept, 10, metric="cosine"))
    whole = found_in(planted())
    assert found
    assert (found.ids, found.twins, found.largest) == (whole.ids, whole.twins, whole.largest)
    assert found.labels == tuple(f"row {i}" for i in found.ids)
    assert found.twin_labels == tuple(f"row {i}" for i in found.twins)
    assert found.largest_label == "row 10"


def test_of_a_sample_the_rows_that_were_asked_are_counted() -> None:
    found = found_in(planted(), sample=150)
    assert found.asked == 150
    assert 0 < found.n < 10


def clouds() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    normal = draw.standard_normal
    some = {f"{n} x {d}": normal((n, d)) for d in (2, 3, 5, 8, 16, 64, 384) for n in (40, 300, 1283)}
    some |= {f"falling spectrum, {d}": normal((1500, d)) * np.logspace(0, -1.5, d) for d in (2, 16, 64, 384)}
    some |= {f"drifted, {d}": normal((1283, d)) + 2 for d in (16, 64, 384)}
    some |= {f"clusters, {d}": 0.1 * normal((1500, d)) + np.repeat(normal((30, d)), 50, 0) for d in (4, 16, 64)}
    return some | {f"box, {d}": draw.random((1500, d)) for d in (3, 16, 64)}


def test_clean_clouds_have_no_near_duplicates_and_no_hubs() -> None:
    """Among 34 clouds at most one row in all is called a near-duplicate; by chance two would be (`BY_CHANCE` each)."""
    rows = 0
    for name, x in clouds().items():
        found = found_in(x)
        rows += found.n
        if name[0].isdigit():
            hubs = measure.hubness(x).details["hub_counts"]
            assert hubs[0] < 30, (name, hubs)  # three times the average; HUB is five times
    assert rows <= 2


@pytest.mark.slow
def test_vectors_of_e5_have_none_and_small_changes_are_found() -> None:
    path = SHARED / "vectors/e5-small-scifact/documents.npy"
    if not path.exists():
        pytest.skip("the vectors of E5 are not there")
    x = np.load(path)
    found = found_in(x)
    assert found.n == 0
    assert 0.98 < found.bar < 0.995
    draw = np.random.default_rng(0)
    moved = x[:50] + 0.003 * draw.standard_normal((50, 384)).astype(np.float32)
    found = found_in(np.concatenate([x, moved]))
    assert found.n == 100
    assert all(i == j + len(x) for i, j in zip(found.ids, found.twins, strict=True))


@pytest.mark.slow
@pytest.mark.long
def test_small_edits_of_texts_are_near_duplicates_for_minilm(minilm: Path) -> None:
    """Texts with a letter or a word less, or a notice before them, among 500 others that are none."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    corpus = SHARED / "retrieval/scifact/corpus.jsonl.xz"
    if not corpus.exists():
        pytest.skip("the texts of SciFact are not there")
    lines = lzma.decompress(corpus.read_bytes()).decode().splitlines()[:500]
    texts = [f"{one['title']} {one['text']}"[:400] for one in map(json.loads, lines)]
    some = texts[:40]
    edits = {
        "without a letter": [text[:50] + text[51:] for text in some],
        "without the last word": [text.rsplit(" ", 1)[0] for text in some],
        "with a notice": [f"Copyright 2019. {text}" for text in some],
    }
    model = sentence_transformers.SentenceTransformer(str(minilm))
    x = model.encode(texts)
    clean = found_in(x)
    assert clean.n == 0
    for name, edited in edits.items():
        rows = as_rows(np.concatenate([x, model.encode(edited)]))
        near = measure.nearest_neighbours(rows, 10, metric="cosine")
        found = near_duplicates(rows, near)
        assert found
        assert found.n >= 0.9 * 80, name
        assert (1 - near.distances[500:, 0] ** 2 / 2 >= found.bar).mean() >= 0.9
