"""The results: frozen records, to and from versioned JSON, and their blocks. Standard library only."""

import dataclasses
import os

from uncone.records.brief import brief
from uncone.records.calibration import (
    Calibration,
    Drift,
    DriftedThreshold,
    LabelledPairs,
    ScoreMeaning,
    ScoreThreshold,
)
from uncone.records.check import Bar, Check
from uncone.records.checkpoints import Checkpoint, CheckpointTrace, SeriesTurn
from uncone.records.comparison import (
    MOST_COMPARED,
    PARTS,
    Change,
    ComparedDiagnosis,
    ComparedFinding,
    ComparedMeasure,
    ComparedSubject,
    Comparison,
    Part,
    taken_in,
)
from uncone.records.context_rank import ContextCurve, ContextDifference, ContextRank
from uncone.records.curves import CurveFamily, CurveVerdict, CurveVerdicts
from uncone.records.diagnosis import Diagnosis, Subject
from uncone.records.edits import (
    EditedTensor,
    EditedToken,
    HeadEdit,
    HeadProof,
    HeadRows,
    RoundingError,
    TextLoss,
    TokenEdit,
)
from uncone.records.evaluation import ORIGINAL, Evaluation, Interval, Price, Selection
from uncone.records.excision import Excised, Excision
from uncone.records.gradient_share import GradientShare, KeptShare
from uncone.records.head import HeadExamination
from uncone.records.known import Placed
from uncone.records.measures import MeasureDescription, Measures
from uncone.records.parts import (
    DEFECTS,
    Finding,
    Fitted,
    Group,
    Groups,
    Level,
    Measurement,
    Norms,
    OddRows,
    Picture,
    Spectrum,
)
from uncone.records.rank_curve import (
    CutBounds,
    Kink,
    RankCurve,
    RankLine,
    Refitting,
    Remedy,
    SmallestRank,
    Start,
)
from uncone.records.rebuild import build_record, expect, parsed, read_text, schema_of
from uncone.records.record import Record
from uncone.records.repair import Lengths, RepairCost, Repaired
from uncone.records.scaling_law import Gap, LawConstant, LawLine, LawRun, ScalingLaw
from uncone.records.scores import Knot, ScoreHistogram, Share
from uncone.records.tokens import (
    UNDER_TRAINED_SHARE,
    Difference,
    Estimate,
    FrequencyGroup,
    FrequencyGroups,
    UnderTrained,
    UnderTrainedToken,
)

__all__ = [
    "DEFECTS",
    "MOST_COMPARED",
    "ORIGINAL",
    "PARTS",
    "UNDER_TRAINED_SHARE",
    "Bar",
    "Calibration",
    "Change",
    "Check",
    "Checkpoint",
    "CheckpointTrace",
    "ComparedDiagnosis",
    "ComparedFinding",
    "ComparedMeasure",
    "ComparedSubject",
    "Comparison",
    "ContextCurve",
    "ContextDifference",
    "ContextRank",
    "CurveFamily",
    "CurveVerdict",
    "CurveVerdicts",
    "CutBounds",
    "Diagnosis",
    "Difference",
    "Drift",
    "DriftedThreshold",
    "EditedTensor",
    "EditedToken",
    "Estimate",
    "Evaluation",
    "Excised",
    "Excision",
    "Finding",
    "Fitted",
    "FrequencyGroup",
    "FrequencyGroups",
    "Gap",
    "GradientShare",
    "Group",
    "Groups",
    "HeadEdit",
    "HeadExamination",
    "HeadProof",
    "HeadRows",
    "Interval",
    "KeptShare",
    "Kink",
    "Knot",
    "LabelledPairs",
    "LawConstant",
    "LawLine",
    "LawRun",
    "Lengths",
    "Level",
    "MeasureDescription",
    "Measurement",
    "Measures",
    "Norms",
    "OddRows",
    "Part",
    "Picture",
    "Placed",
    "Price",
    "RankCurve",
    "RankLine",
    "Record",
    "Refitting",
    "Remedy",
    "RepairCost",
    "Repaired",
    "RoundingError",
    "ScalingLaw",
    "ScoreHistogram",
    "ScoreMeaning",
    "ScoreThreshold",
    "Selection",
    "SeriesTurn",
    "Share",
    "SmallestRank",
    "Spectrum",
    "Start",
    "Subject",
    "TextLoss",
    "TokenEdit",
    "UnderTrained",
    "UnderTrainedToken",
    "load_record",
    "taken_in",
]

for _part in map(globals().get, __all__):
    if isinstance(_part, type) and dataclasses.is_dataclass(_part) and not issubclass(_part, Record):
        # a dataclass writes every field: of a picture 100,000 characters
        _part.__repr__ = brief  # type: ignore[method-assign]

_KINDS: tuple[type[Record], ...] = (
    Diagnosis, Comparison, Check, Evaluation, Calibration, Selection, Repaired, HeadEdit, TokenEdit,
    CurveVerdicts, ScalingLaw, ContextRank, CheckpointTrace, HeadExamination,
)  # fmt: skip


def load_record(path: str | os.PathLike[str]) -> Record:
    """Read the record in the file, of any kind.

    Raises:
        InputError: as of `Record.load`, or a schema of no kind.
    """
    data = parsed(read_text(path, Diagnosis.HOW), what="record", how=Diagnosis.HOW)
    schema = schema_of(data)
    kinds = {kind.SCHEMA: kind for kind in _KINDS}
    known, anew = ", ".join(map(repr, kinds)), f"write one with `{Diagnosis.HOW}`"
    expect(schema in kinds, f"a record whose schema is one of {known}, got {schema!r}: {anew}")
    return build_record(kinds[schema or ""], data, kinds[schema or ""].KIND)
