"""Any saved record: which kind a file holds is said by its schema."""

import os

from uncone.errors import InputError
from uncone.records.calibration import CALIBRATION_SCHEMA, Calibration
from uncone.records.check import CHECK_SCHEMA, Check
from uncone.records.comparison import COMPARISON_SCHEMA, Comparison
from uncone.records.diagnosis import SCHEMA, Diagnosis
from uncone.records.evaluation import EVALUATION_SCHEMA, Evaluation
from uncone.records.head_edit import HEAD_EDIT_SCHEMA, HeadEdit
from uncone.records.rebuild import build_record, parsed, read_text, schema_of
from uncone.records.repair import REPAIRED_SCHEMA, Repaired
from uncone.records.selection import SELECTION_SCHEMA, Selection
from uncone.records.token_edit import TOKEN_EDIT_SCHEMA, TokenEdit

Record = (
    Diagnosis | Comparison | Check | Evaluation | Calibration | Selection | Repaired | HeadEdit | TokenEdit
)
_KINDS: dict[str, tuple[type[Record], str]] = {
    SCHEMA: (Diagnosis, "diagnosis"),
    COMPARISON_SCHEMA: (Comparison, "comparison"),
    CHECK_SCHEMA: (Check, "check"),
    EVALUATION_SCHEMA: (Evaluation, "evaluation"),
    CALIBRATION_SCHEMA: (Calibration, "calibration"),
    SELECTION_SCHEMA: (Selection, "selection"),
    REPAIRED_SCHEMA: (Repaired, "repair"),
    HEAD_EDIT_SCHEMA: (HeadEdit, "head edit"),
    TOKEN_EDIT_SCHEMA: (TokenEdit, "token edit"),
}
_HOW = "uncone diagnose SPEC --json F"


def load_record(path: str | os.PathLike[str]) -> Record:
    """Read whatever record the file holds: a diagnosis, a comparison, a check, an evaluation, a calibration, a selection or a repair.

    Raises:
        InputError: the file cannot be read, is not JSON, has none of these schemas, or a field that is missing, unknown or
            of the wrong type.
    """
    data = parsed(read_text(path, _HOW), what="record", how=_HOW)
    found = schema_of(data)
    if found not in _KINDS:
        known = ", ".join(map(repr, _KINDS))
        raise InputError(
            f"expected a record whose schema is one of {known}, got {found!r}: write one with `{_HOW}`"
        )
    cls, what = _KINDS[found]
    return build_record(cls, data, what)
