"""The results: small frozen records, to and from versioned JSON. Standard library only, so reports need no tensors."""

from uncone.records.calibration import (
    CALIBRATION_SCHEMA,
    Calibration,
    Drift,
    DriftedThreshold,
    LabelledPairs,
    ScoreMeaning,
    ScoreThreshold,
)
from uncone.records.check import CHECK_SCHEMA, Bar, Check
from uncone.records.comparison import (
    COMPARISON_SCHEMA,
    MOST_COMPARED,
    TABLES,
    Change,
    ComparedDiagnosis,
    ComparedFinding,
    ComparedMeasure,
    ComparedSubject,
    Comparison,
    Table,
    taken_in,
)
from uncone.records.diagnosis import SCHEMA, Diagnosis, Subject
from uncone.records.evaluation import EVALUATION_SCHEMA, ORIGINAL, Evaluation, Interval, Price
from uncone.records.head_edit import HEAD_EDIT_SCHEMA, HeadEdit, HeadProof, HeadRows, RoundingError
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Finding, Group, Groups, Measurement, Norms, Spectrum
from uncone.records.picture import Picture
from uncone.records.repair import REPAIRED_SCHEMA, RepairCost, Repaired
from uncone.records.saved import Record, load_record
from uncone.records.scores import Knot, ScoreHistogram, Share
from uncone.records.selection import SELECTION_SCHEMA, Selection
from uncone.records.token_edit import TOKEN_EDIT_SCHEMA, EditedTensor, EditedToken, TextLoss, TokenEdit
from uncone.records.token_measurements import UNDER_TRAINED_SHARE, token_measurements
from uncone.records.tokens import (
    Difference,
    Estimate,
    FrequencyGroup,
    FrequencyGroups,
    UnderTrained,
    UnderTrainedToken,
)

__all__ = [
    "CALIBRATION_SCHEMA",
    "CHECK_SCHEMA",
    "COMPARISON_SCHEMA",
    "EVALUATION_SCHEMA",
    "HEAD_EDIT_SCHEMA",
    "MOST_COMPARED",
    "ORIGINAL",
    "REPAIRED_SCHEMA",
    "SCHEMA",
    "SELECTION_SCHEMA",
    "TABLES",
    "TOKEN_EDIT_SCHEMA",
    "UNDER_TRAINED_SHARE",
    "Bar",
    "Calibration",
    "Change",
    "Check",
    "ComparedDiagnosis",
    "ComparedFinding",
    "ComparedMeasure",
    "ComparedSubject",
    "Comparison",
    "Diagnosis",
    "Difference",
    "Drift",
    "DriftedThreshold",
    "EditedTensor",
    "EditedToken",
    "Estimate",
    "Evaluation",
    "Finding",
    "FrequencyGroup",
    "FrequencyGroups",
    "Group",
    "Groups",
    "HeadEdit",
    "HeadProof",
    "HeadRows",
    "Interval",
    "Knot",
    "LabelledPairs",
    "MeasureDescription",
    "Measurement",
    "Norms",
    "Picture",
    "Price",
    "Record",
    "RepairCost",
    "Repaired",
    "RoundingError",
    "ScoreHistogram",
    "ScoreMeaning",
    "ScoreThreshold",
    "Selection",
    "Share",
    "Spectrum",
    "Subject",
    "Table",
    "TextLoss",
    "TokenEdit",
    "UnderTrained",
    "UnderTrainedToken",
    "load_record",
    "taken_in",
    "token_measurements",
]
