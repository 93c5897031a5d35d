"""Any saved record: its schema says which kind a file holds."""

import os

from uncone.errors import InputError
from uncone.records.calibration import Calibration
from uncone.records.check import Check
from uncone.records.comparison import Comparison
from uncone.records.diagnosis import Diagnosis
from uncone.records.evaluation import Evaluation
from uncone.records.head_edit import HeadEdit
from uncone.records.rebuild import build_record, parsed, read_text, schema_of
from uncone.records.record import Record
from uncone.records.repair import Repaired
from uncone.records.selection import Selection
from uncone.records.token_edit import TokenEdit

KINDS: tuple[type[Record], ...] = (
    Diagnosis, Comparison, Check, Evaluation, Calibration, Selection, Repaired, HeadEdit, TokenEdit,
)  # fmt: skip


def load_record(path: str | os.PathLike[str]) -> Record:
    """Read the record in the file, of whichever kind.

    Raises:
        InputError: the file cannot be read, is not JSON, has none of these schemas, or a field that is missing, unknown or
            of the wrong type.
    """
    data = parsed(read_text(path, Diagnosis.HOW), what="record", how=Diagnosis.HOW)
    schema = schema_of(data)
    kind = next((kind for kind in KINDS if schema == kind.SCHEMA), None)
    if kind is None:
        known = ", ".join(repr(kind.SCHEMA) for kind in KINDS)
        raise InputError(
            f"expected a record whose schema is one of {known}, got {schema!r}: write one with `{Diagnosis.HOW}`"
        )
    return build_record(kind, data, kind.KIND)
