"""The results: small frozen records, to and from versioned JSON, and the blocks that show them. Standard
library only."""

from uncone.records.calibration import (
    Calibration,
    Drift,
    DriftedThreshold,
    LabelledPairs,
    ScoreMeaning,
    ScoreThreshold,
)
from uncone.records.check import Bar, Check
from uncone.records.compared import (
    PARTS,
    Change,
    ComparedFinding,
    ComparedMeasure,
    ComparedSubject,
    Part,
    taken_in,
)
from uncone.records.comparison import MOST_COMPARED, ComparedDiagnosis, Comparison
from uncone.records.diagnosis import Diagnosis
from uncone.records.evaluation import ORIGINAL, Evaluation, Interval, Price
from uncone.records.head_edit import HeadEdit, HeadProof, HeadRows, RoundingError
from uncone.records.measures import MeasureDescription, Measures
from uncone.records.parts import Finding, Group, Groups, Measurement, Norms, Spectrum
from uncone.records.picture import Picture
from uncone.records.record import Record
from uncone.records.repair import RepairCost, Repaired
from uncone.records.saved import load_record
from uncone.records.scores import Knot, ScoreHistogram, Share
from uncone.records.selection import Selection
from uncone.records.subject import Subject
from uncone.records.token_edit import EditedTensor, EditedToken, TextLoss, TokenEdit
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
    "MOST_COMPARED",
    "ORIGINAL",
    "PARTS",
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
    "Measures",
    "Norms",
    "Part",
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
    "TextLoss",
    "TokenEdit",
    "UnderTrained",
    "UnderTrainedToken",
    "load_record",
    "taken_in",
]
