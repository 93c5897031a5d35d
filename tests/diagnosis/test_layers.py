"""Readings of layers: similarities against slow loops, clusters against scikit-learn, logits by definition."""

import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncone.diagnosis.findings import LOW_RANK, VERY_LOW_RANK
from uncone.diagnosis.why.layers.cluster_cosine import cluster_cosine, silhouettes, within_clusters
from uncone.diagnosis.why.layers.contexts import context_readings, explained, intra_similarity, self_similarity
from uncone.diagnosis.why.layers.layers import EDGES, cosine_histogram, describe, dimensions_for, is_rogue
from uncone.diagnosis.why.layers.logits import isotropic_logits, judge, spectrum_of_logits
from uncone.diagnosis.why.layers.record import LayerProfile
from uncone.diagnosis.why.layers.state_picture import frequency_groups, picture_of
from uncone.errors import InputError
from uncone.model.layer_states import Head, LayerStates
from uncone.model.state_sums import Sample
from uncone.moments import Moments
from uncone.records.blocks import Document
from uncone.records.rebuild import build_record
from uncone.report.html import to_page

Array = np.ndarray[Any, Any]


def _cosine(a: Array, b: Array) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def _cloud(n: int = 600, d: int = 12, seed: int = 0) -> tuple[Array, Array, Array]:
    """States of 20 tokens in segments of 15, each near a vector of its token, with a common direction."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, 20, n)
    x = random.standard_normal((20, d))[ids] + 0.7 * random.standard_normal((n, d)) + 0.8
    return x.astype(np.float32), ids.astype(np.int64), np.arange(n) // 15


def test_similarities_are_those_of_loops_over_pairs() -> None:
    x, ids, segments = _cloud(200)
    found = context_readings(x, ids, segments)
    similarities, shares = [], []
    for token in range(20):
        own = x[ids == token].astype(np.float64)
        if len(own) >= 5 and len(set(segments[ids == token])) >= 5:
            similarities.append(np.mean([_cosine(a, b) for a, b in itertools.combinations(own, 2)]))
            values = np.linalg.svd(own, compute_uv=False) ** 2
            shares.append(values[0] / values.sum())
    assert found.self_tokens == len(similarities) > 5
    assert found.self_similarity == pytest.approx(np.mean(similarities), abs=1e-6)
    assert found.mev == pytest.approx(np.mean(shares), abs=1e-6)
    inside = []
    for segment in np.unique(segments):
        own = x[segments == segment].astype(np.float64)
        inside.append(np.mean([_cosine(own.mean(0), row) for row in own]))
    assert found.intra_similarity == pytest.approx(np.mean(inside), abs=1e-6)


def test_random_baselines_are_those_of_a_cloud_without_tokens() -> None:
    """Where tokens mean nothing, values are those of their random baselines, which have the same estimator."""
    random = np.random.default_rng(0)
    x = (random.standard_normal((3000, 16)) + 0.5).astype(np.float32)
    found = context_readings(x, random.integers(0, 60, 3000), np.arange(3000) // 20)
    m = Moments.of(x)
    cosine = float((np.square(m.unit_sums()[0]).sum() - m.n) / (m.n * (m.n - 1)))
    assert found.mev == pytest.approx(found.mev_random, abs=0.01)
    assert found.intra_similarity == pytest.approx(found.intra_random, abs=0.01)
    assert found.self_similarity == pytest.approx(cosine, abs=0.01)
    assert found.intra_random > cosine + 0.05  # a state is part of the mean that it is compared with


def test_too_few_contexts_have_no_similarity() -> None:
    x, ids, _ = _cloud(100)
    found = context_readings(x, ids, np.zeros(100, np.int64))
    assert (found.self_similarity, found.mev, found.self_tokens) == (None, None, 0)


@given(st.integers(2, 12), st.integers(2, 6), st.floats(0.1, 10), st.integers(0, 99))
def test_ranges_and_scale(n: int, d: int, scale: float, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((n, d))
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert -1 / (n - 1) - 1e-9 <= self_similarity(units) <= 1 + 1e-9
    assert 1 / min(n, d) - 1e-9 <= explained(x) <= 1 + 1e-9
    assert explained(scale * x) == pytest.approx(explained(x))
    assert intra_similarity(scale * x, units) == pytest.approx(intra_similarity(x, units))


def test_the_silhouette_is_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    x, ids, _ = _cloud(150)
    distances = metrics.pairwise_distances(x.astype(np.float64))
    for labels in (ids % 4, (ids > 3).astype(int), np.r_[np.zeros(149, int), 1]):
        assert silhouettes(distances, [labels])[0] == pytest.approx(metrics.silhouette_score(x, labels), abs=1e-6)


def test_cosines_within_clusters_are_those_of_loops() -> None:
    x, ids, _ = _cloud(60)
    labels = np.arange(60) % 3
    inter, intra = [], []
    for cluster in range(3):
        own, tokens = x[labels == cluster].astype(np.float64), ids[labels == cluster]
        own = own - own.mean(0)
        pairs = list(itertools.combinations(range(len(own)), 2))
        inter.append(np.mean([_cosine(own[a], own[b]) for a, b in pairs if tokens[a] != tokens[b]]))
        for token in np.unique(tokens):
            same = [_cosine(own[a], own[b]) for a, b in pairs if tokens[a] == tokens[b] == token]
            intra += [np.mean(same)] if same else []
    assert within_clusters(x, ids, labels) == pytest.approx((np.mean(inter), np.mean(intra)), abs=1e-6)


def test_a_cluster_of_two_does_not_outweigh_the_others() -> None:
    x, labels = np.random.default_rng(0).standard_normal((302, 8)), np.r_[np.zeros(300, int), 1, 1]
    inter, _ = within_clusters(x, np.arange(302), labels)
    assert inter == pytest.approx((300 * -1 / 299 - 2) / 302, abs=5e-3)


def test_planted_clusters_are_found_and_one_is_one() -> None:
    pytest.importorskip("sklearn")
    random = np.random.default_rng(0)
    middles = 20 * random.standard_normal((4, 8))
    x = (middles[np.arange(400) % 4] + random.standard_normal((400, 8)) + 30).astype(np.float32)
    found, note = cluster_cosine(x, np.arange(400) % 50, Moments.of(x))
    assert note == ""
    assert found.clusters == 4
    assert abs(found.inter or 1) < 0.05  # isotropic within
    wide = np.linalg.qr(random.standard_normal((200, 200)))[0][:, : x.shape[1]]  # the same cloud in 200 columns
    other = (x @ wide.T).astype(np.float32)
    turned, _ = cluster_cosine(other, np.arange(400) % 50, Moments.of(other))
    assert turned is not None
    assert (turned.clusters, turned.inter) == (4, pytest.approx(found.inter, abs=1e-4))
    even = random.standard_normal((400, 32)).astype(np.float32)
    one, _ = cluster_cosine(even, np.arange(400), Moments.of(even))
    assert one.clusters == 1
    assert cluster_cosine(x[:9], np.arange(9), Moments.of(x[:9]))[0] is None


def test_the_histogram_counts_every_pair() -> None:
    x, _, _ = _cloud(40)
    cosines = [_cosine(a, b) for a, b in itertools.combinations(x, 2)]
    expected = np.histogram(cosines, EDGES)[0] / len(cosines)
    np.testing.assert_allclose(cosine_histogram(x), expected, atol=2 / len(cosines))
    assert cosine_histogram(np.zeros((3, 2))) == ()


@pytest.mark.parametrize(("share", "expected"), [(0.5, 1), (0.6, 1), (0.61, 2), (0.9, 2), (0.99, 3), (1.0, 3)])
def test_dimensions_for_a_share(share: float, expected: int) -> None:
    assert dimensions_for(np.array([6.0, 3.0, 1.0]), share) == expected
    assert dimensions_for(np.zeros(3), share) is None


def _states(layers: dict[str, Array], ids: Array, segments: Array) -> LayerStates:
    sample = Sample(tuple(layers.values()), ids, segments, np.arange(len(ids)), segments)
    fields = {"name": "planted", "causal": False, "sequences": 9, "stopped": False, "notes": (), "sample": sample}
    fields |= {"counts": np.bincount(ids, minlength=20), "labels": tuple(f"t{i}" for i in range(20))}
    fields |= {"intervals": (None,) * len(layers), "apart": np.zeros((2, 1 + len(layers)))}
    moments = tuple(map(Moments.of, layers.values()))
    no_head = {"head": None, "read": None, "why_no_head": "the model has no output head"}
    return LayerStates(layers=tuple(layers), moments=moments, **fields, **no_head)


def _planted() -> LayerStates:
    """A healthy first layer; a second with one rogue dimension."""
    random = np.random.default_rng(1)
    ids = random.integers(0, 20, 2000)
    healthy = random.standard_normal((2000, 32)).astype(np.float32)
    rogue = healthy.copy()
    rogue[:, 7] += 9
    return _states({"embeddings": healthy, "layer 1": rogue}, ids, np.arange(2000) // 20)


def test_a_planted_rogue_dimension_is_named_and_a_healthy_twin_is_not() -> None:
    found = describe(_planted())
    healthy, rogue = found.layers
    assert not is_rogue(healthy)
    assert is_rogue(rogue)
    assert (rogue.rogue_dimensions[0], rogue.outlier_dimensions) == (7, (7,))
    assert rogue.rogue_share > 0.95
    assert "rises most from embeddings to layer 1" in found.verdict
    assert "In layer 1 dimension 7 alone carries" in found.verdict
    quiet = replace(_planted(), layers=("embeddings",), moments=_planted().moments[:1])
    for interval, said in {
        (0.0, 0.05): "No layer has a common direction to speak of",
        (0.0, 0.3): "It is not certain that states share a common direction",
        None: "Too little text to judge whether states share a common direction",  # what was not found may be there
    }.items():
        assert describe(replace(quiet, intervals=(interval,))).verdict.startswith(said)


def test_a_common_direction_is_said_where_its_interval_is_beyond_the_threshold() -> None:
    states = _planted()
    for interval, said in {
        None: "Too little text to judge whether states share a common direction: two of these 2,000",
        (0.05, 0.8): "It is not certain that states share a common direction: two of them have a mean cosine of 0.7",
        (0.6, 0.8): "States share a common direction in layer 1: two of them have a mean cosine of 0.7",
    }.items():
        verdict = describe(replace(states, intervals=(interval,) * len(states.layers))).verdict
        assert verdict.startswith(said)
        assert "dimension 7 alone carries" in verdict


def test_a_share_of_a_dimension_names_the_layer_it_was_measured_in() -> None:
    """Behind the last layer's cosine it read as that layer's share."""
    states = _planted()
    quieter = _states(
        {
            "embeddings": states.sample.layers[0],
            "layer 1": states.sample.layers[1],
            "final norm": states.sample.layers[0],
        },
        states.sample.ids,
        states.sample.segments,
    )
    said = describe(quieter).verdict
    assert "; in final norm it is " in said
    assert ". In layer 1 dimension 7 alone carries " in said
    assert said.endswith("% of the mean cosine.")


def test_which_tokens_were_read_and_how_the_text_was_cut_is_said() -> None:
    found = replace(describe(_planted()), cut="windows of running text of at most 64 ids")
    lines = {
        0: "2,000 tokens in 9 sequences, windows",
        2000: "All 2,000 tokens in 9",
        9000: "The first 2,000 of 9,000 tokens in 9",
    }
    for text_tokens, begins in lines.items():
        sizes = [
            block.text
            for block in replace(found, text_tokens=text_tokens).blocks()
            if getattr(block, "tone", "") == "quiet"
        ]
        assert sizes[0].startswith(begins), sizes


def test_readings_are_those_of_the_measures() -> None:
    states = _planted()
    x = states.sample.layers[1].astype(np.float64)
    found = describe(states).layers[1]
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert found.mean_cosine.value == pytest.approx(((units @ units.T).sum() - 2000) / (2000 * 1999), abs=1e-5)
    values = np.linalg.svd(x, compute_uv=False) ** 2
    centred = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    assert found.anisotropy_raw == pytest.approx(values[0] / values.sum(), abs=1e-6)
    assert found.anisotropy == pytest.approx(centred[0] / centred.sum(), abs=1e-6)
    assert found.dimensions_90 == int((np.cumsum(centred) / centred.sum() < 0.9).sum()) + 1
    assert found.alpha_ranks == (3, 32)
    assert found.mean_norm == pytest.approx(np.linalg.norm(x, axis=1).mean())


def test_a_page_shows_all_and_the_record_comes_back() -> None:
    found = describe(_planted(), counts=np.arange(20), pictured=(0, -1))
    page = to_page(Document("planted", "diagnosis", found.blocks()))
    assert all(title in page for title in ("Hidden states, layer by layer", "Cosines of pairs of states"))
    assert "Logit spectrum: the model has no output head" in page
    assert found.pictured == ("embeddings", "layer 1")
    assert found.pictures[0].group_names[0] == "seen 0 times"
    assert build_record(LayerProfile, json.loads(json.dumps(asdict(found))), "layers") == found


def test_counts_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected whole counts of 20 ids, got \(19,\)"):
        picture_of(_planted(), 0, np.ones(19, np.int64))


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30))
def test_groups_of_frequency_are_ordered(counts: list[int]) -> None:
    names, groups = frequency_groups(np.array(counts))
    assert len(names) <= 6
    assert groups.max() < len(names)
    assert (np.diff(groups[np.argsort(counts)]) >= 0).all()


def _head(v: int = 300, d: int = 32, seed: int = 2, *, low: int | None = None, **options: Any) -> Head:
    weight = np.random.default_rng(seed).standard_normal((v, d)).astype(np.float32)
    if low is not None:
        weight[:, low:] *= 1e-3
    return Head(weight + 0.3, None, **options)


def test_logits_are_those_of_their_definition() -> None:
    states = replace(_planted(), head=_head(), read=1, why_no_head="")
    found = spectrum_of_logits(states)
    x, w = states.sample.layers[1].astype(np.float64), states.head.weight.astype(np.float64)
    logits = x @ w.T
    logits -= logits.mean(1, keepdims=True)
    between = np.linalg.svd(logits - logits.mean(0), compute_uv=False) / np.sqrt(len(x) - 1)
    np.testing.assert_allclose(found.values, between[:32], rtol=1e-4)
    p = between[:32] / between[:32].sum()
    assert found.effective_rank == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-4)
    same = np.square(logits.mean(0)).sum() * len(x) / np.square(logits).sum()
    assert found.mean_share == pytest.approx(same, rel=1e-4)
    assert found.mean_share > 0.5 > 1 - found.effective_rank / found.reference
    assert (found.level, found.most, found.capped) == ("healthy", 32, False)


def test_what_changes_no_probability_changes_no_logit_spectrum() -> None:
    """A row added to all rows of the head, and a map between head and states."""
    states = replace(_planted(), head=_head(), read=1)
    random = np.random.default_rng(3)
    r = np.linalg.qr(random.standard_normal((32, 32)))[0] * np.geomspace(0.5, 2, 32)
    mapped = (states.sample.layers[1] @ np.linalg.inv(r)).astype(np.float32)
    weight = states.head.weight @ r.T + 5 * random.standard_normal(32)
    other = replace(states, moments=(states.moments[0], Moments.of(mapped)), head=Head(weight.astype(np.float32), None))
    a, b = spectrum_of_logits(states), spectrum_of_logits(other)
    np.testing.assert_allclose(a.values, b.values, rtol=2e-3)


def test_a_head_of_few_directions_is_severe_and_a_capped_one_is_read_as_stored() -> None:
    planted = replace(_planted(), read=1)
    few = spectrum_of_logits(replace(planted, head=_head(low=3)))
    assert few.level == "severe"
    assert few.verdict.startswith("The logits use only a few directions: ")
    capped = spectrum_of_logits(replace(planted, head=_head(cap=30.0)))
    assert capped.capped
    assert "The model caps its logits, so its head is read as stored" in str([*map(vars, capped.blocks())])
    assert spectrum_of_logits(_planted()) == "the model has no output head"


def test_verdicts_from_both_sides_of_each_threshold() -> None:
    levels = [judge(bar + by) for bar in (LOW_RANK, VERY_LOW_RANK) for by in (-1e-9, 0.0)]
    assert levels == ["warning", "healthy", "severe", "warning"]


@pytest.mark.parametrize(("v", "n", "d"), [(400, 3000, 64), (2000, 500, 64), (100, 4000, 40)])
def test_the_isotropic_reference_is_that_of_random_head_and_states(v: int, n: int, d: int) -> None:
    random = np.random.default_rng(0)
    states, head = random.standard_normal((n, d)), random.standard_normal((v, d))
    r_states, r_head = np.linalg.qr(states)[1], np.linalg.qr(head - head.mean(0))[1]
    values = np.linalg.svd(r_states @ r_head.T, compute_uv=False)  # those of all logits
    p = values / values.sum()
    assert isotropic_logits(v - 1, n - 1, d)[1] == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=0.01)


@pytest.mark.slow
def test_stories260k_layer_by_layer(stories: Path, tmp_path: Path) -> None:
    """A trained decoder: its head is judged by its logits, and what stands first is a sink."""
    from uncone.model.hidden_states import hidden_states_of
    from uncone.model.text_sources import open_texts

    text = "Once upon a time there was a little girl. She liked to play with her red ball in the park.\n"
    (tmp_path / "t.txt").write_text(200 * text)
    found = describe(hidden_states_of(stories, open_texts(tmp_path / "t.txt"), most=2000))
    assert found.layers[-1].name == "final norm"
    assert found.logits.most == min(512 - 1, 64)


def test_value_and_baseline_of_mev_are_drawn_alike() -> None:
    """States of ten topics in the order of a text, tokens without a meaning: the value is near its baseline."""
    random = np.random.default_rng(0)
    topics = np.repeat(np.arange(10), 800)
    x = (2 * random.standard_normal((10, 64))[topics] + random.standard_normal((8000, 64))).astype(np.float32)
    ids = np.where(random.random(8000) < 0.3, 0, random.integers(1, 40, 8000))
    found = context_readings(x, ids, np.arange(8000) // 64)
    first = explained(x[np.flatnonzero(ids == 0)[:64]])  # of neighbouring documents
    assert first > 2 * found.mev_random
    assert abs(found.mev - found.mev_random) < 0.01
