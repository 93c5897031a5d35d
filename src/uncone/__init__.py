"""uncone measures, explains, repairs and prevents representation degeneration in language models.

Public names are loaded when they are first used: importing `uncone` loads neither torch nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from uncone.version import __version__

if TYPE_CHECKING:
    from uncone import calibration as calibration
    from uncone import edits as edits
    from uncone import explain as explain
    from uncone import measure, report, transforms
    from uncone import memory as memory
    from uncone import model as model
    from uncone import prevent as prevent
    from uncone import records as records
    from uncone import rows as rows
    from uncone import saturation as saturation
    from uncone import tasks as tasks
    from uncone import topology as topology
    from uncone.cross_entropy import CrossEntropyOptions, gated_linear_cross_entropy, linear_cross_entropy
    from uncone.errors import (
        InputError,
        StepWarning,
        UnconeError,
        UndefinedMeasure,
        UnsupportedModel,
    )
    from uncone.model.open import open_rows
    from uncone.moments import Moments
    from uncone.prevent.attach import Attached, attach
    from uncone.prevent.attach_states import AttachedStates, attach_states
    from uncone.prevent.gate import RareTokenGate
    from uncone.prevent.gradient_monitor import GradientMonitor
    from uncone.prevent.persistent_entropy import PersistentEntropy
    from uncone.records import (
        Check,
        CheckpointTrace,
        Comparison,
        ContextRank,
        CurveVerdicts,
        Diagnosis,
        Evaluation,
        Finding,
        HeadExamination,
        Measurement,
        ScalingLaw,
        Subject,
        TokenFrequencies,
    )
    from uncone.rows import Rows
    from uncone.verbs.calibrate import calibrate
    from uncone.verbs.center_head import center_head
    from uncone.verbs.check import check
    from uncone.verbs.compare import compare
    from uncone.verbs.context_rank import context_rank
    from uncone.verbs.count import count
    from uncone.verbs.diagnose import diagnose
    from uncone.verbs.evaluate import evaluate
    from uncone.verbs.examine_head import examine_head
    from uncone.verbs.fit_scaling_law import fit_scaling_law
    from uncone.verbs.judge_curves import judge_curves
    from uncone.verbs.measures import measures
    from uncone.verbs.repair import repair
    from uncone.verbs.repair_tokens import repair_tokens
    from uncone.verbs.select_repair import select_repair
    from uncone.verbs.trace_checkpoints import trace_checkpoints

_NAMES = {
    "cross_entropy": "CrossEntropyOptions gated_linear_cross_entropy linear_cross_entropy",
    "errors": "InputError StepWarning UnconeError UndefinedMeasure UnsupportedModel",
    "model.open": "open_rows",
    "moments": "Moments",
    "prevent": "Attached AttachedStates GradientMonitor PersistentEntropy RareTokenGate attach attach_states",
    "records": "Calibration Check CheckpointTrace Comparison ContextRank CurveVerdicts Diagnosis Evaluation Finding "
    "HeadExamination Measurement Repaired ScalingLaw Subject TokenFrequencies",
    "rows": "Rows",
}
"""The names of each room; every other public name is a room or a file of this folder, or the function of a verb."""
_ROOM = {name: room for room, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Attached", "AttachedStates", "Calibration", "Check", "CheckpointTrace", "Comparison", "ContextRank",
    "CrossEntropyOptions", "CurveVerdicts", "Diagnosis", "Evaluation", "Finding", "GradientMonitor",
    "HeadExamination",
    "InputError", "Measurement", "Moments", "PersistentEntropy", "RareTokenGate", "Repaired", "Rows",
    "ScalingLaw", "StepWarning", "Subject", "TokenFrequencies", "UnconeError", "UndefinedMeasure", "UnsupportedModel",
    "__version__", "attach", "attach_states", "calibrate", "center_head", "check", "compare",
    "context_rank", "count", "diagnose", "evaluate", "examine_head", "fit_scaling_law", "gated_linear_cross_entropy",
    "judge_curves", "linear_cross_entropy", "measure", "measures", "open_rows", "repair", "repair_tokens",
    "report", "select_repair", "trace_checkpoints", "transforms",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__ or name in ("measure", "report", "transforms"):
        from uncone.lazy import load_part

        return load_part("uncone", name)
    try:
        value = getattr(import_module(f"uncone.{_ROOM.get(name, f'verbs.{name}')}"), name)
    except ModuleNotFoundError as error:
        from uncone.errors import without_package

        raise (without_package(error, f"uncone.{name}") or error) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from uncone.lazy import parts

    return sorted({*__all__, *parts("uncone")})
