"""What a repair, an edit of a model and a selection look like in a terminal."""

import io

import pytest
from rich.console import Console

from uncone import report
from uncone.edits.record import (
    EditedTensor,
    EditedToken,
    HeadEdit,
    HeadProof,
    HeadRows,
    RoundingError,
    TextLoss,
    TokenEdit,
)
from uncone.evaluation.record import Interval, Selection
from uncone.records.parts import Fitted, Measurement
from uncone.records.record import Record
from uncone.repairs.record import RepairCost, Repaired

HOSTILE = "[bold]\x1b[31m\u202eevil"
REPAIRED = Repaired(
    verdict=f"{HOSTILE}: better.",
    name=HOSTILE,
    out=HOSTILE,
    kind="vectors",
    method="center",
    gains=True,
    n=1000,
    d=8,
    k=8,
    dtype="float32",
    fitted=Fitted(HOSTILE, 1000, 8, "ab" * 32),
    cost=RepairCost(0.1, 0.2, 0.3, 0),
    measured=1000,
    before=(Measurement("mean_cosine", 0.99999999, range=(-1.0, 1.0), better="lower", reference=0.0),),
    after=(Measurement("mean_cosine", None, reason="no directions", range=(-1.0, 1.0), better="lower"),),
    notes=(HOSTILE,),
)
PROOF = HeadProof(HOSTILE, 512, "float32", "float64", 1e-5, 2e-5, 1.5e-5, 4e-5, 511, 1)
HEAD = HeadEdit(
    name=HOSTILE,
    head="lm_head.weight",
    n=100,
    d=8,
    dtype="float32",
    way="folded",
    folded_into=(HOSTILE,),
    added=(),
    before=HeadRows(2.0, 1.5, 3.0, 0.4),
    after=HeadRows(1.5, 0.0, 2.0, 0.0),
    proof=PROOF,
    effects=(RoundingError("int8_tensor", 0.01, 0.02),),
    unchanged=12,
    warnings=("repetition penalty",),
    left_out=("onnx",),
)
TOKENS = TokenEdit(
    name=HOSTILE,
    method="sub_tokens",
    edited=12,
    tokens=tuple(EditedToken(i, HOSTILE, "sub_tokens", (1, 2)) for i in range(12)),
    tensors=(EditedTensor("table", "both", 100, 8, "float32", 88, 2.0, None, 1.9),),
    unchanged=3,
    seed=0,
    loss=TextLoss(HOSTILE, "next_token", 400, 2, 3.5, 3.4),
)
SELECTION = Selection(
    "Leave it.", HOSTILE, "retrieval", "ndcg10", "original", None, 0.6, {"center": Interval(-0.01, -0.02, 0.005)}, 200
)


def _printed(record: Record, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding=encoding), width=100, color_system=None, highlight=False)
    report.print_record(record, console)
    console.file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("record", [REPAIRED, HEAD, TOKENS, SELECTION], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_hostile_strings_are_text_and_anything_can_be_printed(record: Record, encoding: str) -> None:
    told = _printed(record, encoding)
    assert "\x1b[31m" not in told
    assert "\u202e" not in told
    assert type(record).from_json(record.to_json()) == record


def test_a_repair_says_what_was_undefined_and_rounds_onto_no_limit() -> None:
    told = _printed(REPAIRED)
    assert "ROUNDER" in told
    assert "1,000 rows of 8 columns" in told
    assert "<1" in told
    assert "undefined" in told


def test_an_edit_of_a_head_shows_its_proof_and_its_losses() -> None:
    told = _printed(HEAD)
    sentence = " ".join(told.split())
    assert "its log-probabilities are within 1.50e-5 nats of exact ones, the original's within 2.00e-5" in sentence
    shown = {
        line[: line.rindex(" ")].strip(): line.split()[-1]
        for line in told.splitlines()
        if "e-5" in line and "  " in line
    }
    assert shown["largest error of the edited model"] == "1.50e-5"
    assert shown["allowed to it"] == "4.00e-5"
    assert shown["largest difference between the two"] == "1.00e-5"
    assert "but for 1 tie within rounding" in sentence
    assert "Warning: repetition penalty" in told
    row = next(line for line in told.splitlines() if line.startswith("int8, one scale"))
    assert row.split()[-2:] == ["0.0100", "0.0200"]  # it got worse, and is shown
    assert (
        told.index("int8, one scale") < told.index("rows of the head") < told.index("norm of the mean row")
    )  # which is no error
    assert "Not copied: onnx." in told


def test_an_edit_of_tokens_shows_some_and_counts_the_rest() -> None:
    told = _printed(TOKENS)
    assert "12 tokens of" in told
    assert "and 2 more" in told
    assert "not finite" in told
    assert "3.50 nats before, 3.40 after, over 400 targets (2 of them edited tokens)" in " ".join(told.split())


def test_a_selection_shows_every_repair() -> None:
    told = " ".join(_printed(SELECTION).split())
    assert told.startswith("LEAVE IT Leave it.")
    assert "center -0.0100 -0.0200 to +0.00500" in told
