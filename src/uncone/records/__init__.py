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
from uncone.records.parts import Finding, Group, Groups, Measurement, Norms, Spectrum
from uncone.records.picture import Picture
from uncone.records.saved import Record, load_record
from uncone.records.scores import Knot, ScoreHistogram, Share
from uncone.records.token_measurements import UNDER_TRAINED_SHARE, token_measurements
from uncone.records.tokens import Difference, Estimate, FrequencyGroup, FrequencyGroups, UnderTrained, UnderTrainedToken

__all__ = [
    "CALIBRATION_SCHEMA",
    "CHECK_SCHEMA",
    "COMPARISON_SCHEMA",
    "EVALUATION_SCHEMA",
    "MOST_COMPARED",
    "ORIGINAL",
    "SCHEMA",
    "TABLES",
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
    "Estimate",
    "Evaluation",
    "Finding",
    "FrequencyGroup",
    "FrequencyGroups",
    "Group",
    "Groups",
    "Interval",
    "Knot",
    "LabelledPairs",
    "Measurement",
    "Norms",
    "Picture",
    "Price",
    "Record",
    "ScoreHistogram",
    "ScoreMeaning",
    "ScoreThreshold",
    "Share",
    "Spectrum",
    "Subject",
    "Table",
    "UnderTrained",
    "UnderTrainedToken",
    "load_record",
    "taken_in",
    "token_measurements",
]
