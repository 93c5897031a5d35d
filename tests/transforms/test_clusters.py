"""Repairs by cluster against a slow loop, and what they do where a cluster is small, empty or all one row."""

import builtins
from pathlib import Path

import numpy as np
import pytest
import torch

from uncone.errors import InputError
from uncone.rows import as_rows
from uncone.transforms import ClusterCenter, load
from uncone.transforms import clusters as module

from ..matrices import close, equal, gaussian, with_spectrum
from ..rows.reading import refuses

pytest.importorskip("sklearn", reason="the extra [cluster] is not installed")
Tensor = torch.Tensor


def _clusters(sizes: tuple[int, ...] = (120, 90, 60), d: int = 12) -> Tensor:
    """Well separated clusters of these sizes, in a shuffled order, float64."""
    parts = []
    for i, n in enumerate(sizes):
        x = with_spectrum(n, 2.0 ** -torch.arange(d), seed=i) if n > d else gaussian(n, d, seed=i, dtype=torch.float64)
        parts.append(x + 40 * torch.eye(d, dtype=torch.float64)[i])
    x = torch.cat(parts)
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))]


def _slowly(x: Tensor, centers: Tensor, k: int, fitted: Tensor) -> Tensor:
    """One row after another: its nearest centre, the mean of that cluster, and its singular vectors, on `fitted`."""

    def cluster(row: Tensor) -> int:
        return min(range(len(centers)), key=lambda c: float(((row - centers[c]) ** 2).sum()))

    members = {c: fitted[[i for i in range(len(fitted)) if cluster(fitted[i]) == c]] for c in range(len(centers))}
    found = []
    for row in x:
        rows = members[cluster(row)]
        z = row - rows.mean(0)
        for u in torch.linalg.svd(rows - rows.mean(0))[2][:k]:
            z = z - u @ z * u
        found.append(z)
    return torch.stack(found)


def test_it_is_the_slow_loop() -> None:
    x = _clusters()
    made = ClusterCenter(3, 2).fit(x)
    assert sorted(torch.bincount(made.assign(x)).tolist()) == [60, 90, 120]
    for rows in (x, _clusters((5, 6, 7)) + 0.1):
        slow = _slowly(rows, torch.from_numpy(made.centers_), 2, x)
        torch.testing.assert_close(made.transform(rows), slow, atol=1e-8, rtol=0)


def test_every_cluster_is_centred_and_has_lost_its_directions() -> None:
    x = _clusters()
    made = ClusterCenter(3, 2).fit(x)
    y, label = made.transform(x), made.assign(x)
    for cluster in range(3):
        own = y[label == cluster]
        assert float(own.mean(0).norm()) < 1e-9
        values = torch.linalg.eigvalsh(torch.cov(own.T)).flip(0)
        torch.testing.assert_close(values[:10], 2.0 ** -torch.arange(2, 12).double(), atol=1e-7, rtol=1e-7)


def test_one_cluster_is_all_but_the_top() -> None:
    from uncone.transforms import AllButTheTop

    x = _clusters()
    torch.testing.assert_close(ClusterCenter(1, 2).fit_transform(x), AllButTheTop(2).fit_transform(x))


def test_the_seed_alone_decides() -> None:
    x = gaussian(500, 14)
    first = ClusterCenter(5, 2, seed=3).fit_transform(x)
    assert torch.equal(ClusterCenter(5, 2, seed=3).fit_transform(x), first)
    assert not torch.equal(ClusterCenter(5, 2, seed=4).fit_transform(x), first)


def test_clusters_searched_in_a_sample_and_summed_in_turns_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    x = _clusters()
    whole = ClusterCenter(3, 2).fit(x)
    monkeypatch.setattr(module, "SAMPLED_NUMBERS", 100 * 12)
    monkeypatch.setattr(module, "_SUMS_BYTES", 1)
    parts = ClusterCenter(3, 2).fit(x)
    torch.testing.assert_close(parts.transform(x), whole.transform(x), atol=1e-8, rtol=0)
    assert parts.fitted_ == whole.fitted_


def test_weights_are_repeated_rows_where_the_clusters_are_the_same() -> None:
    x = _clusters()
    counts = torch.randint(1, 4, (len(x),), generator=torch.Generator().manual_seed(1))
    weighted = ClusterCenter(3, 2).fit(x, weights=counts)
    repeated = ClusterCenter(3, 2).fit(x.repeat_interleave(counts, 0))
    torch.testing.assert_close(weighted.transform(x), repeated.transform(x), atol=1e-7, rtol=0)


def test_small_clusters_keep_half_of_their_directions() -> None:
    x = _clusters((120, 5, 1))
    made = ClusterCenter(3, 4).fit(x)
    sizes, removed = torch.bincount(made.assign(x), minlength=3), made.components_.any(2).sum(1)
    assert {int(n): int(k) for n, k in zip(sizes, removed, strict=True)} == {120: 4, 5: 2, 1: 0}
    assert float(made.transform(x)[made.assign(x) == int(sizes.argmin())].abs().max()) == 0


def test_fewer_distinct_rows_than_clusters() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).repeat(10, 1)
    made = ClusterCenter(4, 1).fit(x)
    assert float(made.transform(x).abs().max()) < 1e-6
    assert not made.components_.any()


def test_far_from_the_origin_rows_find_their_cluster() -> None:
    x = _clusters()
    moved = (x + 1e4).float()
    made, far = ClusterCenter(3, 2).fit(x), ClusterCenter(3, 2).fit(moved)
    assert sorted(torch.bincount(far.assign(moved)).tolist()) == [60, 90, 120]
    assert float((far.transform(moved) - made.transform(x)).abs().max()) < 0.02


def test_what_it_refuses() -> None:
    refuses("expected at least 27 rows for as many clusters, got 20", lambda: ClusterCenter().fit(gaussian(20, 30)))
    with pytest.raises(InputError, match="expected rows of more than 12 features to remove as many directions, got 10"):
        ClusterCenter().fit(gaussian(100, 10))


def test_without_scikit_learn_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object, **options: object) -> object:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    refuses(r"pip install 'uncone\[cluster\]'", lambda: ClusterCenter(2, 2).fit(gaussian(100, 10)))


def test_new_rows_are_assigned_without_scikit_learn(tmp_path: Path) -> None:
    x = _clusters().float()
    made = ClusterCenter(3, 2).fit(x)
    made.save(tmp_path / "c.safetensors")
    loaded = load(tmp_path / "c.safetensors")
    assert torch.equal(loaded.transform(x), made.transform(x))
    assert np.array_equal(loaded.transform(x.numpy()), made.transform(x).numpy())
    assert equal(np.concatenate(list(loaded.transform(as_rows(x)).blocks())), made.transform(x))


def test_rows_without_weight_are_not_there() -> None:
    x = gaussian(40, 6, dtype=torch.float64)
    few = ClusterCenter(1, 2).fit(x[:3])  # of 3 rows one direction is removed, of 40 there would be two
    weighted = ClusterCenter(1, 2).fit(x, weights=torch.arange(40) < 3)
    torch.testing.assert_close(weighted.transform(x), few.transform(x))
    x = gaussian(300, 6, dtype=torch.float64)
    far = torch.cat([x, 1e6 * x])  # k-means stops the sooner, the wider its rows are spread
    weighted = ClusterCenter(5, 2).fit(far, weights=torch.arange(600) < 300)
    assert close(weighted.centers_, ClusterCenter(5, 2).fit(x).centers_)
