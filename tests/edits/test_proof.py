"""The proof's arithmetic by hand: what passes, what is a tie, and what must never pass."""

import gzip

import pytest
import torch

from uncone.edits.proof import Run, compare, require
from uncone.errors import InputError, UnsupportedModel
from uncone.model.text_sources import MOST_TEXT, read_texts
from uncone.model.texts import cut


def run(*rows: list[float], dtype=torch.float32) -> Run:
    return Run(torch.tensor(rows), torch.zeros(len(rows), 2), dtype)


def proof(before: Run, after: Run, reference: Run):
    return compare(before, after, reference, text="hand", how="by hand")


def test_figures_by_hand():
    """Two tokens of equal logits: log-probabilities -ln 2. A logit that is larger by e moves them by e / 2 up and down, to first order."""
    found = proof(run([0.0, 0.0]), run([0.002, 0.0]), run([0.0, 0.001]))
    assert found.difference == pytest.approx(0.001, rel=2e-3)
    assert found.rounding == pytest.approx(0.0005, rel=2e-3)
    assert found.rounding_edited == pytest.approx(0.0015, rel=2e-3)
    assert found.allowed == pytest.approx(1.5 * found.rounding + 2**-24 * 0.002)
    assert (found.positions, found.same_first, found.dtype) == (1, 1, "float32")
    with pytest.raises(UnsupportedModel, match=r"within 0\.00075 nats .* error is 0\.0005 .* got an error of 0\.0015 "):
        require(found)


def test_the_edited_model_may_err_by_half_as_much_again_and_no_more():
    """To first order a logit that is off by e errs by e / 2: the original by 1, the edited model on the same side or on the other by 1.4, then 1.6."""
    exact, original = run([0.0, 0.0]), run([2e-3, 0.0])
    for edited, holds in ((2.8e-3, True), (-2.8e-3, True), (3.2e-3, False), (-3.2e-3, False)):
        found = proof(original, run([edited, 0.0]), exact)
        assert found.difference <= found.rounding + found.rounding_edited
        found = found.__class__(**{**vars(found), "same_first": 1, "ties": 0})  # what comes first is another matter
        if holds:
            require(found)
        else:
            with pytest.raises(UnsupportedModel, match="nothing was written"):
                require(found)


def test_what_changes_no_probability_passes():
    nearer = proof(run([2e-3, 0.0]), run([1e-5, 0.0]), run([0.0, 0.0]))
    assert nearer.difference > 0.9 * nearer.rounding
    require(nearer)
    before = run([1.0, 2.0, 3.0], [0.5, 0.25, -4.0])
    moved = proof(before, Run(before.logits + torch.tensor([[8.0], [-16.0]]), before.hidden, torch.float32), before)
    assert moved.difference == 0  # a constant is added to each position
    require(moved)
    masked = run([1.0, float("-inf"), 2.0])
    found = proof(masked, masked, masked)
    assert (found.difference, found.same_first) == (0, 1)
    assert found.allowed < 1e-5
    require(found)


def test_ties_are_counted_and_changes_refused():
    near, other = run([1.0, 1.0 + 1e-7, 0.0], [3.0, 1.0, 0.0]), run([1.0 + 1e-7, 1.0, 0.0], [3.0, 1.0, 0.0])
    found = proof(near, other, near)
    assert (found.same_first, found.ties) == (1, 1)
    require(found)
    changed = proof(run([1.0, 1.2]), run([1.2, 1.0]), run([1.0, 1.2]))
    assert (changed.same_first, changed.ties) == (0, 0)
    with pytest.raises(UnsupportedModel, match="nothing was written"):
        require(changed)


def test_another_first_token_is_refused_even_where_the_distance_is_allowed():
    found = proof(run([0.0, 0.3], [0.0, 0.0]), run([0.06, 0.0], [0.0, 0.0]), run([0.0, 0.3], [0.0, 5.0]))
    assert found.rounding_edited < found.allowed
    assert found.ties == 1  # by a rounding as coarse as this, it is one
    fine = found.__class__(**{**vars(found), "ties": 0})
    with pytest.raises(UnsupportedModel, match="got another at 1 without a tie"):
        require(fine)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_never_passes(bad):
    good, broken = run([1.0, 2.0], [1.0, 2.0]), run([1.0, bad], [1.0, 2.0])
    runs = [(good, broken, good), (broken, good, broken), (broken, good, good), (good, good, broken)]
    for sides in runs if bad == float("-inf") else [*runs, (broken, broken, broken)]:
        with pytest.raises(UnsupportedModel):
            require(proof(*sides))


def test_windows_of_ids():
    ids = torch.arange(10)
    assert cut(ids, 4).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert cut(ids, 16).tolist() == [list(range(10))]
    assert cut(ids[:1], 4) is None


def test_texts_plain_and_packed(tmp_path):
    (tmp_path / "a.txt").write_text("wörd " * 3, encoding="utf-8")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(("wörd " * 3).encode()))
    assert read_texts(tmp_path / "a.txt") == read_texts(tmp_path / "a.txt.gz") == ["wörd " * 3]
    (tmp_path / "long.txt").write_text("a" * (MOST_TEXT + 5))
    assert list(map(len, read_texts(tmp_path / "long.txt"))) == [MOST_TEXT]
    (tmp_path / "bad.gz").write_bytes(b"no gzip")
    for path in (tmp_path / "bad.gz", tmp_path):
        with pytest.raises(InputError, match=r"cannot read .*: give a text in UTF-8"):
            read_texts(path)
