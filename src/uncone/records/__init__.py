"""The results: frozen records, to and from versioned JSON, and their blocks. Standard library only."""

import dataclasses
import os

from uncone.lazy import open_room
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
from uncone.records.cone import AvoidedCloud, NegativeDirection, NormDirection
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
from uncone.records.explanation import Explanation
from uncone.records.frequency_bins import CountCorrelation, FrequencyBin, FrequencyBins, PlacedToken
from uncone.records.gradient_share import GradientShare, KeptShare
from uncone.records.gradients import GradientLedger, MeanDrift, RowGradients
from uncone.records.head import HeadExamination
from uncone.records.known import Placed
from uncone.records.layers import LayerProfile, LayerReading, LogitSpectrum
from uncone.records.margins import HeadMargin, MarginClaim
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
from uncone.records.token_frequency import (
    CountedToken,
    Coverage,
    RankFrequency,
    TokenFrequencies,
    ZipfLaw,
)
from uncone.records.tokens import (
    UNDER_TRAINED_SHARE,
    Difference,
    Estimate,
    FrequencyGroup,
    FrequencyGroups,
    UnderTrained,
    UnderTrainedToken,
)
from uncone.records.unreachable import SettableSets, SettableTokens, UnreachableToken, UnreachableTokens

__all__ = [
    "DEFECTS",
    "MOST_COMPARED",
    "ORIGINAL",
    "PARTS",
    "UNDER_TRAINED_SHARE",
    "AvoidedCloud",
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
    "CountCorrelation",
    "CountedToken",
    "Coverage",
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
    "Explanation",
    "Finding",
    "Fitted",
    "FrequencyBin",
    "FrequencyBins",
    "FrequencyGroup",
    "FrequencyGroups",
    "Gap",
    "GradientLedger",
    "GradientShare",
    "Group",
    "Groups",
    "HeadEdit",
    "HeadExamination",
    "HeadMargin",
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
    "LayerProfile",
    "LayerReading",
    "Lengths",
    "Level",
    "LogitSpectrum",
    "MarginClaim",
    "MeanDrift",
    "MeasureDescription",
    "Measurement",
    "Measures",
    "NegativeDirection",
    "NormDirection",
    "Norms",
    "OddRows",
    "Part",
    "Picture",
    "Placed",
    "PlacedToken",
    "Price",
    "RankCurve",
    "RankFrequency",
    "RankLine",
    "Record",
    "Refitting",
    "Remedy",
    "RepairCost",
    "Repaired",
    "RoundingError",
    "RowGradients",
    "ScalingLaw",
    "ScoreHistogram",
    "ScoreMeaning",
    "ScoreThreshold",
    "Selection",
    "SeriesTurn",
    "SettableSets",
    "SettableTokens",
    "Share",
    "SmallestRank",
    "Spectrum",
    "Start",
    "Subject",
    "TextLoss",
    "TokenEdit",
    "TokenFrequencies",
    "UnderTrained",
    "UnderTrainedToken",
    "UnreachableToken",
    "UnreachableTokens",
    "ZipfLaw",
    "load_record",
    "taken_in",
]

for _part in map(globals().get, __all__):
    if isinstance(_part, type) and dataclasses.is_dataclass(_part) and not issubclass(_part, Record):
        # a dataclass writes every field: of a picture 100,000 characters
        _part.__repr__ = brief  # type: ignore[method-assign]

_KINDS: tuple[type[Record], ...] = (
    Diagnosis, Comparison, Check, Evaluation, Calibration, Selection, Repaired, HeadEdit, TokenEdit,
    CurveVerdicts, ScalingLaw, ContextRank, CheckpointTrace, HeadExamination, TokenFrequencies,
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


open_room(__name__)
