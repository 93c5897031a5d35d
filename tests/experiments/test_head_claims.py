"""How often the sentences about a head are false: small cells again, the interval of a share, and what is kept."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
Load = Callable[[str], Any]
KEPT = Path(__file__).parents[2] / "experiments/saturation/results/head_claims.json"


def test_the_upper_limit_of_a_share_is_that_of_clopper_and_pearson(saturation: Load) -> None:
    stats = pytest.importorskip("scipy.stats")
    for said, texts in ((0, 300), (4, 300), (17, 100)):
        expected = stats.beta.ppf(0.95, said + 1, texts - said)
        assert saturation("head_claims").upper(said, texts) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("cell", ["constant", "drift 8", "rank edge"])
def test_a_small_cell_says_what_is_planted(saturation: Load, cell: str) -> None:
    claims = saturation("head_claims")
    found, sentences = claims.compute(cell, 8), claims.CELLS[cell][3]
    for sentence, is_true in sentences.items():
        assert found["said"][sentence] >= 7 if is_true else found["said"][sentence] <= 1, sentence


def test_the_kept_cells_raise_few_false_alarms(saturation: Load) -> None:
    claims, kept = saturation("head_claims"), json.loads(KEPT.read_text())
    assert set(kept) == set(claims.CELLS)
    for name, (_, _, _, sentences) in claims.CELLS.items():
        for sentence, is_true in sentences.items():
            said, texts = kept[name]["said"][sentence], kept[name]["texts"]
            if not is_true:
                assert claims.upper(said, texts) <= 0.06, (name, sentence)


def test_the_frequent_ids_are_numbered_again_and_their_logits_stay(saturation: Load) -> None:
    torch = pytest.importorskip("torch")
    claims, kept = saturation("head_claims"), saturation("smollm2")
    given = claims.Planted(zipf=1.0).states(0, 500)
    found = kept.frequent(given, 20)
    counts = torch.bincount(given.labels, minlength=claims.V)
    ids = sorted(torch.sort(counts, descending=True, stable=True)[1][:20].tolist())
    here = torch.tensor([int(label) in ids for label in given.labels])
    assert [ids[label] for label in found.labels.tolist()] == given.labels[here].tolist()
    torch.testing.assert_close(found.logits(found.states), given.logits(given.states[here])[:, ids])
    assert found.windows.tolist() == given.windows[here].tolist()
