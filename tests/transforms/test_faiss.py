"""A repair as a Faiss transform: the same numbers, alone, in an index, and from a file."""

from pathlib import Path

import numpy as np
import pytest
import torch

from uncone import InputError
from uncone.transforms import Affine, AllButTheTop, Center, ClusterCenter, Normalized, Whiten
from uncone.transforms.faiss import to_faiss, to_index

from ..rows.reading import refuses
from .repairs import FROM_MOMENTS

faiss = pytest.importorskip("faiss", reason="the extra [faiss] is not installed")
X = np.random.default_rng(0).normal(1, size=(200, 12)).astype(np.float32)


@pytest.mark.parametrize(
    "transformation", [*(made for made in FROM_MOMENTS if made.affine), Whiten("pca", n_components=5)], ids=repr
)
def test_faiss_gives_what_transform_gives(tmp_path: Path, transformation) -> None:
    transformation.fit(X)
    found = to_faiss(transformation, tmp_path / "t.faiss")
    expected = transformation.transform(X)
    assert (found.d_in, found.d_out) == (12, expected.shape[1])
    for one in (found, faiss.read_VectorTransform(str(tmp_path / "t.faiss"))):
        np.testing.assert_allclose(one.apply(X), expected, rtol=1e-4, atol=1e-4)


def test_an_index_repairs_what_is_added_and_what_is_asked() -> None:
    fitted = Whiten("pca", n_components=6).fit(X)
    index = faiss.IndexPreTransform(to_faiss(fitted), faiss.IndexFlatL2(6))
    index.add(X)
    distances, ids = index.search(X[:5], 3)
    y = fitted.transform(X)
    plain = ((y[:5, None] - y[None]) ** 2).sum(2)
    np.testing.assert_array_equal(ids, np.argsort(plain, axis=1)[:, :3])
    np.testing.assert_allclose(distances, np.sort(plain, axis=1)[:, :3], atol=1e-4)


def test_rotations_are_known_to_be_orthonormal() -> None:
    turn, _ = torch.linalg.qr(torch.randn(4, 4))
    assert to_faiss(Affine(torch.zeros(4), turn)).is_orthonormal
    assert not to_faiss(Affine(torch.zeros(4), 2 * turn)).is_orthonormal


@pytest.mark.parametrize("made", [Whiten(), AllButTheTop(2)], ids=repr)
def test_a_saved_index_has_its_vectors_back_as_the_documents_say(made, tmp_path: Path) -> None:
    """Faiss 1.15 reads each transform as an orthonormal one: where that is mended, docs/repair.md has a trap less."""
    fitted = made.fit(X)
    index = to_index(fitted, faiss.IndexFlatL2(12))
    index.add(X)
    faiss.write_index(index, str(tmp_path / "x.faiss"))
    read = faiss.read_index(str(tmp_path / "x.faiss"))
    np.testing.assert_array_equal(read.search(X[:5], 3)[0], index.search(X[:5], 3)[0])
    assert abs(read.reconstruct(0) - X[0]).max() > 0.1
    stored = faiss.downcast_index(read.index).reconstruct_n(0, len(X))
    np.testing.assert_allclose(stored, fitted.transform(X), atol=1e-4)
    faiss.downcast_VectorTransform(read.chain.at(0)).set_is_orthonormal()
    for one in (index, read):
        with pytest.raises(RuntimeError, match="reverse transform not implemented for non-orthonorm"):
            one.reconstruct(0)


def test_what_is_not_affine_or_not_fitted_is_refused(tmp_path: Path) -> None:
    message = r"expected an affine transformation for a Faiss transform, .* got ClusterCenter"
    refuses(message, to_faiss, ClusterCenter())
    refuses("expected a fitted Center", lambda: to_faiss(Center()))
    refuses("cannot write", lambda: to_faiss(Center().fit(X), tmp_path / "no" / "t"))


@pytest.mark.parametrize("made", [Center(), Whiten("pca", n_components=5)], ids=repr)
def test_an_index_of_normalised_rows_gives_cosines(made) -> None:
    fitted = made.fit(X)
    y = fitted.transform(X).astype(np.float64)
    cosines = y @ y[:3].T / np.outer(np.linalg.norm(y, axis=1), np.linalg.norm(y[:3], axis=1))
    index = to_index(Normalized(fitted), faiss.IndexFlatIP(y.shape[1]))
    index.add(X)
    scores, ids = index.search(X[:3], len(X))
    for i in range(3):
        np.testing.assert_allclose(scores[i], cosines[ids[i], i], atol=1e-5)
    plain = to_index(fitted, faiss.IndexFlatL2(y.shape[1]))
    plain.add(X)
    assert plain.search(X[:1], 1)[0][0, 0] == pytest.approx(0, abs=1e-4)


def test_what_a_linear_transform_cannot_hold_is_refused() -> None:
    refuses(r"expected a repair that is one matrix .* use to_index", lambda: to_faiss(Normalized(Center().fit(X))))
    with pytest.raises(InputError, match="expected an index of 12 features, the width of repaired rows, got one of 7"):
        to_index(Normalized(Center().fit(X)), faiss.IndexFlatIP(7))
