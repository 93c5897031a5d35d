"""What a repair, an edit of a model and a selection look like in a terminal."""

from functools import partial

import pytest

from tests.report.printed import printed
from uncone.edits import record as edits
from uncone.evaluation.record import Interval, Selection
from uncone.records.parts import Fitted, Measurement
from uncone.records.record import Record
from uncone.repairs.record import RepairCost, Repaired

HOSTILE = "[bold]\x1b[31m\u202eevil"
_COSINE = partial(Measurement, "mean_cosine", range=(-1.0, 1.0), better="lower")
_RECORDED = {"n": 1000, "d": 8, "k": 8, "dtype": "float32", "measured": 1000, "cost": RepairCost(0.1, 0.2, 0.3, 0)}
_NAMED = {"verdict": f"{HOSTILE}: better.", "name": HOSTILE, "out": HOSTILE, "kind": "vectors", "method": "center"}
_SIDES = {"before": (_COSINE(0.99999999, reference=0.0),), "after": (_COSINE(None, reason="no directions"),)}
_FITTED = Fitted(HOSTILE, 1000, 8, "ab" * 32)
REPAIRED = Repaired(**_NAMED, **_RECORDED, **_SIDES, fitted=_FITTED, gains=True, notes=(HOSTILE,))
PROOF = edits.HeadProof(HOSTILE, 512, "float32", "float64", 1e-5, 2e-5, 1.5e-5, 4e-5, 511, 1)
_TABLE = {"name": HOSTILE, "head": "lm_head.weight", "n": 100, "d": 8, "dtype": "float32", "unchanged": 12}
_WAY = {"way": "folded", "folded_into": (HOSTILE,), "added": (), "left_out": ("onnx",)}
_WAY |= {"warnings": ("repetition penalty",)}
_ROWS = {"before": edits.HeadRows(2.0, 1.5, 3.0, 0.4), "after": edits.HeadRows(1.5, 0.0, 2.0, 0.0)}
_EFFECTS = (edits.RoundingError("int8_tensor", 0.01, 0.02),)
HEAD = edits.HeadEdit(**_TABLE, **_WAY, **_ROWS, proof=PROOF, effects=_EFFECTS)
_EDITED = tuple(edits.EditedToken(i, HOSTILE, "sub_tokens", (1, 2)) for i in range(12))
_TENSOR = edits.EditedTensor("table", "both", 100, 8, "float32", 88, 2.0, None, 1.9)
_LOSS = edits.TextLoss(HOSTILE, "next_token", 400, 2, 3.5, 3.4)
_SAID = {"name": HOSTILE, "method": "sub_tokens", "edited": 12, "unchanged": 3, "seed": 0}
TOKENS = edits.TokenEdit(**_SAID, tokens=_EDITED, tensors=(_TENSOR,), loss=_LOSS)
SELECTION = Selection(
    "Leave it.", HOSTILE, "retrieval", "ndcg10", "original", None, 0.6, {"center": Interval(-0.01, -0.02, 0.005)}, 200
)


@pytest.mark.parametrize("record", [REPAIRED, HEAD, TOKENS, SELECTION], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_hostile_strings_are_text_and_anything_can_be_printed(record: Record, encoding: str) -> None:
    assert not {"\x1b", "\u202e"} & set(printed(record, 100, encoding))
    assert type(record).from_json(record.to_json()) == record


def test_a_repair_says_what_was_undefined_and_rounds_onto_no_limit() -> None:
    told = printed(REPAIRED, 100)
    assert "ROUNDER" in told
    assert "1,000 rows of 8 columns" in told
    assert "<1" in told
    assert "undefined" in told


def test_an_edit_of_a_head_shows_its_proof_and_its_losses() -> None:
    told = printed(HEAD, 100)
    sentence = " ".join(told.split())
    assert "its log-probabilities are within 1.50e-5 nats of exact ones (the original's: 2.00e-5). The same" in sentence
    rows = [line for line in told.splitlines() if "e-5" in line and "  " in line]
    shown = {line[: line.rindex(" ")].strip(): line.split()[-1] for line in rows}
    assert shown["largest error of the edited model"] == "1.50e-5"
    assert shown["limit for the edited model"] == "4.00e-5"
    assert shown["largest difference between the two"] == "1.00e-5"
    assert "except for 1 tie within rounding" in sentence
    assert "Warning: repetition penalty" in told
    row = next(line for line in told.splitlines() if line.startswith("int8, one scale"))
    assert row.split()[-2:] == ["0.0100", "0.0200"]  # it got worse, and is shown
    # The norm of the mean row is no error.
    assert told.index("int8, one scale") < told.index("rows of the head") < told.index("norm of the mean row")
    assert "Not copied: onnx." in told


def test_an_edit_of_tokens_shows_some_and_counts_the_rest_and_a_selection_shows_every_repair() -> None:
    told = printed(TOKENS, 100)
    assert "12 tokens of" in told
    assert "and 2 more" in told
    assert "not finite" in told
    assert "3.50 nats before, 3.40 after, over 400 targets (2 of them edited tokens)" in " ".join(told.split())
    told = " ".join(printed(SELECTION, 100).split())
    assert told.startswith("LEAVE IT Leave it.")
    assert "center -0.0100 -0.0200 to +0.00500" in told
