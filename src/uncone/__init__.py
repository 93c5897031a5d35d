"""uncone measures, explains, repairs and prevents representation degeneration in language models.

Public names are loaded when they are first used: importing `uncone` loads neither torch nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from uncone.version import __version__

if TYPE_CHECKING:
    from uncone import measure, report, transforms
    from uncone.cross_entropy import CrossEntropyOptions, gated_linear_cross_entropy, linear_cross_entropy
    from uncone.errors import InputError, UnconeError, UndefinedMeasure, UnsupportedModel
    from uncone.model.open import open_rows
    from uncone.moments import Moments
    from uncone.prevent.attach import Attached, attach
    from uncone.prevent.attach_states import AttachedStates, attach_states
    from uncone.prevent.gate import RareTokenGate
    from uncone.prevent.persistent_entropy import PersistentEntropy
    from uncone.records import Check, Comparison, Diagnosis, Evaluation, Finding, Measurement, Subject
    from uncone.rows import Rows
    from uncone.verbs.calibrate import calibrate
    from uncone.verbs.center_head import center_head
    from uncone.verbs.check import check
    from uncone.verbs.compare import compare
    from uncone.verbs.diagnose import diagnose
    from uncone.verbs.evaluate import evaluate
    from uncone.verbs.measures import measures
    from uncone.verbs.repair import repair
    from uncone.verbs.repair_tokens import repair_tokens
    from uncone.verbs.select_repair import select_repair

_WHERE = {
    "Attached": "uncone.prevent",
    "AttachedStates": "uncone.prevent",
    "Calibration": "uncone.records",
    "Check": "uncone.records",
    "Comparison": "uncone.records",
    "CrossEntropyOptions": "uncone.cross_entropy",
    "Diagnosis": "uncone.records",
    "Evaluation": "uncone.records",
    "Finding": "uncone.records",
    "InputError": "uncone.errors",
    "Measurement": "uncone.records",
    "Moments": "uncone.moments",
    "PersistentEntropy": "uncone.prevent",
    "RareTokenGate": "uncone.prevent",
    "Repaired": "uncone.records",
    "Rows": "uncone.rows",
    "Subject": "uncone.records",
    "UnconeError": "uncone.errors",
    "UndefinedMeasure": "uncone.errors",
    "UnsupportedModel": "uncone.errors",
    "attach": "uncone.prevent",
    "attach_states": "uncone.prevent",
    "calibrate": "uncone.verbs.calibrate",
    "center_head": "uncone.verbs.center_head",
    "check": "uncone.verbs.check",
    "evaluate": "uncone.verbs.evaluate",
    "select_repair": "uncone.verbs.select_repair",
    "compare": "uncone.verbs.compare",
    "diagnose": "uncone.verbs.diagnose",
    "gated_linear_cross_entropy": "uncone.cross_entropy",
    "linear_cross_entropy": "uncone.cross_entropy",
    "measure": "uncone.measure",
    "measures": "uncone.verbs.measures",
    "open_rows": "uncone.model.open",
    "transforms": "uncone.transforms",
    "repair": "uncone.verbs.repair",
    "repair_tokens": "uncone.verbs.repair_tokens",
    "report": "uncone.report",
}

__all__ = [
    "Attached",
    "AttachedStates",
    "Calibration",
    "Check",
    "Comparison",
    "CrossEntropyOptions",
    "Diagnosis",
    "Evaluation",
    "Finding",
    "InputError",
    "Measurement",
    "Moments",
    "PersistentEntropy",
    "RareTokenGate",
    "Repaired",
    "Rows",
    "Subject",
    "UnconeError",
    "UndefinedMeasure",
    "UnsupportedModel",
    "__version__",
    "attach",
    "attach_states",
    "calibrate",
    "center_head",
    "check",
    "compare",
    "diagnose",
    "evaluate",
    "gated_linear_cross_entropy",
    "linear_cross_entropy",
    "measure",
    "measures",
    "open_rows",
    "repair",
    "repair_tokens",
    "report",
    "select_repair",
    "transforms",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'uncone' has no attribute {name!r}")
    module = import_module(_WHERE[name])
    value = module if module.__name__ == f"uncone.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
