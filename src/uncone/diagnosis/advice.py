"""What to do about a finding, and a command to paste."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from uncone.diagnosis.record import Diagnosis
from uncone.model.open import open_spec
from uncone.records.parts import Finding
from uncone.records.text import visible

Kind = Literal["vectors", "table", "head", "tensor"]
"""What rows are; a "tensor" is any other matrix of a model: no advice is known."""
_TRAIN_ON = "In training, keep AdamW's beta2 at 0.999 (docs/prevention.md)."
_PREVENT = (
    "train the next model with AdamW's beta2 at 0.999, or with a second moment shared across rows "
    "(`uncone.TableAdam`; docs/prevention.md)"
)
"""In `experiments/rare_tokens` both lower the mean cosine and the loss; a penalty on the cosine raises the loss, and a gate
does less. Models were trained from scratch there; an untied input table was not judged."""
_COMPARED = "If you compare its token vectors yourself, {} first (`uncone.transforms.{}`)."
_LOST = "Editing the rows cannot bring lost directions back. Train further, or use another width."
_SEEN = "Test on your own queries whether this helps your search: `uncone evaluate --queries`."
_NEW_ROWS = "Set these rows from their sub-tokens, then train further. Until then they may look untrained."
_GIANT = "Leave these rows out or recompute them. Each of them shifts every mean."
_ADVICE: dict[str, dict[Kind | Literal["tokens", "tied"], str]] = {
    "common_direction_drift": {
        "vectors": "Read scores as percentiles. Test on judged queries whether the ranking suffers: "
        "`uncone evaluate --queries`.",
        "table": "The layers were trained with this direction, so keep the table. "
        + _COMPARED.format("subtract the mean row", "Center"),
        "tied": f"The layers were trained with this direction, so keep the table. To reduce it, {_PREVENT}. "
        + _COMPARED.format("subtract the mean row", "Center"),
        "head": f"To reduce it, {_PREVENT}. `uncone.CenterRows` keeps the mean of an untied head at 0 in training.",
    },
    "rogue_dimensions": {
        "vectors": f"Subtract the mean row, and divide each feature by its standard deviation. {_SEEN}",
        "table": "Nothing to repair in the model: its layers decide what this dimension does. "
        + _COMPARED.format("divide each feature by its standard deviation", "Standardize"),
        "head": "Nothing to repair in the head: the states decide what this dimension does.",
    },
    "dominant_direction": {
        "vectors": f"Remove the leading directions. {_SEEN}",
        "table": "Nothing to repair in the model: its layers decide what this direction does. "
        + _COMPARED.format("remove the leading directions", "AllButTheTop"),
    },
    "low_effective_rank": {
        "vectors": f"Whiten softly, or store only the leading components. The others hold little. {_SEEN}",
        "table": _LOST,
        "head": f"A head of few directions cannot rank tokens freely. {_LOST}",
    },
    "low_logit_rank": {
        "head": "Editing the head's rows cannot bring back directions that head and states together do not use. Train "
        "further, or use another width. `uncone saturation head` shows what a smaller head would cost."
    },
    "degenerate_tail": {
        "vectors": "Do not trust similarities with these rows. Recompute them or leave them out.",
        "table": f"{_NEW_ROWS} {_TRAIN_ON}",
        "head": f"{_NEW_ROWS} {_TRAIN_ON}",
    },
    "near_copies": {
        "vectors": "Look at some of these rows. Do they share one topic, or repeat one text?",
        "tokens": "Try some of these tokens in a prompt before you use them. Do not trust their similarities.",
    },
    "alike_rows": {
        "vectors": "Nothing to do if these rows share one topic.",
        "tokens": "Do not trust similarities between these rows.",
    },
    "under_trained_tokens": {
        "vectors": "Leave these rows out, or make them from more texts.",
        "tokens": f"Try these tokens in a prompt before use. {_NEW_ROWS}",
    },
    "new_rows": {
        "tokens": "Start these rows from the rows of their sub-tokens or from the mean row, then train further. Small "
        "random rows are far from all others, and large ones take all the probability."
    },
    "zero_rows": {
        "vectors": "Look at the texts: an empty text can give a zero row. Recompute these vectors, or leave them out.",
        "table": "Give the rows of added tokens values before you train further. A padding row may stay zero.",
        "head": "Give the rows of added tokens values before you train further.",
    },
    "equal_rows": {
        "vectors": "Check whether the texts are duplicates or empty, or the encoder failed and returned a default.",
        "tokens": "Nothing separated these rows: added tokens were set to one value, or no text trained them. Give "
        "these tokens rows of their own before you use them (`uncone repair-tokens --tokens IDS`).",
    },
    "near_duplicates": {"vectors": "Look at the texts of these pairs. Keep one row where the texts are the same."},
    "hubs": {
        "vectors": "Look at the texts of these rows: are they very short, or broken? Your queries may find other rows."
    },
    "giant_rows": {"vectors": _GIANT, "tokens": _GIANT},
    "nonfinite_rows": {
        "vectors": "Recompute these vectors: an overflow or a division by zero produced them.",
        "tokens": "Go back to a checkpoint without these rows. Training diverged, or the file is damaged.",
    },
}
"""By cause and kind of rows; "tokens" means a table or a head, where the advice is about the model; "tied" means
a table that is also the head."""
_CENTER_HEAD = (
    "Predictions need no repair. To store, quantise or compare the head's rows without it, centre the head: "
    "`uncone center-head` proves that no probability changes."
)
_OF_A_NOTE = {
    "degenerate_tail": "Nothing to do unless these tokens come into use. Then give them new rows first.",
    "zero_rows": "Nothing to do if these rows are padding or stay unused.",
    "leaning_rows": "Nothing to do if these rows share one topic. Do not trust similarities of very rare words.",
}
_REPAIRS = {
    "rogue_dimensions": ("standardized", "standardize", "standardize", "Standardize()"),
    "dominant_direction": ("repaired", "all_but_the_top_d100", "repair", "AllButTheTop()"),
    "low_effective_rank": ("whitened", "whiten", "whiten", "Whiten()"),
}
"""The file to write, the method, the file that the method is saved in, and the method in Python."""
_GIANTS = "Leave the giant rows out first, then diagnose again. They decide every mean and every spectrum."
_EQUAL = "Keep only one of the equal rows first, then diagnose again. The equal rows may cause this."
FIRST = {("giant_rows", "warning"): _GIANTS, ("giant_rows", "severe"): _GIANTS, ("equal_rows", "severe"): _EQUAL}
"""What to do before any repair of the cloud, by cause and level."""


@dataclass(frozen=True)
class Advice:
    kind: Kind = "vectors"
    matrix: str | None = None
    """Quoted for a shell; None for rows in memory, empty for a path that cannot be pasted."""
    model: str | None = None
    is_tied: bool = False  # the head's rows are the table's
    finds_untrained: bool = False  # for `repair_tokens`
    has_tokens: bool = False  # token strings, of which new rows can be made
    has_unit_rows: bool = False

    @property
    def is_of_tokens(self) -> bool:
        return self.kind in ("table", "head")

    def on(self, finding: Finding) -> Finding:
        cause, is_note = finding.cause, finding.level == "note"
        if cause == "common_direction_of_the_head":
            return replace(finding, repair=_CENTER_HEAD, command=self._command(cause, ""))
        if not finding.is_defect and not is_note:
            return finding
        if is_note and cause in _OF_A_NOTE:
            return replace(finding, repair=_OF_A_NOTE[cause], command="")
        texts = _ADVICE.get(cause, {})
        tied = texts.get("tied") if self.kind == "table" and self.is_tied else None
        text = tied or texts.get(self.kind) or (self.is_of_tokens and texts.get("tokens")) or finding.repair
        return replace(finding, repair=text, command=self._command(cause, finding.command))

    def _command(self, cause: str, ids: str) -> str:
        if cause == "new_rows":
            return self._edit(
                "repair-tokens", "set", f" --tokens {ids}" + " --method covariance" * (not self.has_tokens)
            )
        if self.is_of_tokens and cause in ("degenerate_tail", "under_trained_tokens", "zero_rows"):
            by_name = cause == "zero_rows"
            if not (by_name or self.finds_untrained):
                return ""
            how = " --tokens zero" * by_name + " --method covariance" * (by_name or not self.has_tokens)
            return self._edit("repair-tokens", "filled" if by_name else "repaired", how)
        if cause == "common_direction_of_the_head":
            return self._edit("center-head", "centred", " --untie" * self.is_tied)
        if cause == "common_direction_drift" and self.kind == "vectors":
            in_a_shell = self.matrix and f"uncone calibrate {self.matrix}"
            return "calibration = uncone.calibrate(x)" if in_a_shell is None else in_a_shell
        if cause not in _REPAIRS or self.kind != "vectors":
            return ""
        out, method, saved, in_python = _REPAIRS[cause]
        if self.matrix is None:
            return f"repaired = uncone.transforms.{in_python}.fit(x).transform(x)"
        options = f" --save {saved}.safetensors" + " --normalize" * self.has_unit_rows
        return self.matrix and f"uncone repair {self.matrix} {out}.npy --method {method}{options}"

    def _edit(self, command: str, done: str, options: str) -> str:
        if self.model is None:
            return ""
        name = Path(shlex.split(self.model)[0]).name or "model"
        return f"uncone {command} {self.model} {shlex.quote(f'{name}-{done}')}{options}"


def advice_for(spec: Any, name: str, editable: bool) -> Advice:
    """`editable`: whether `repair_tokens` and `center_head` accept the model of `spec`."""
    opened = open_spec(spec) if isinstance(spec, str | os.PathLike) else None
    other: Kind = "tensor" if opened and opened.is_model else "vectors"
    kind: Kind = "head" if name == "head" else "table" if name == "input" else other
    if not opened:
        return Advice(kind)
    text, part = path_in_commands(opened.spec), opened.part
    if visible(text) != text:  # characters that are not what they look like
        return Advice(kind, "")
    model = shlex.quote(text if part is None else text[: -len(part) - 1])
    is_tied = editable and opened.model.places().tied
    return Advice(kind, shlex.quote(text), model if editable else None, is_tied)


def path_in_commands(spec: str) -> str:
    """The path from the working directory on, or its last two names: shared reports should not show whole paths."""
    here = os.path.join(os.getcwd(), "")
    text = spec.removeprefix(here) if os.path.isabs(spec) else spec
    if os.path.isabs(text):
        text = "/".join(Path(text).parts[-2:])
    return f"./{text}" if text.startswith("-") else text


def with_whole_paths(diagnosis: Diagnosis, arguments: Mapping[str, Any]) -> Diagnosis:
    """The diagnosis with commands that can be pasted here, because a record holds only the ends of paths."""
    spec = str(arguments["spec"])
    cut = path_in_commands(spec)
    if cut in (spec, f"./{spec}") or not os.path.isabs(spec):
        return diagnosis

    def whole(command: str) -> str:
        words = shlex.split(command)
        return shlex.join(f"{spec}{word[len(cut) :]}" if word.startswith(cut) else word for word in words)

    subjects = (
        replace(one, findings=tuple(replace(f, command=whole(f.command)) for f in one.findings))
        for one in diagnosis.subjects
    )
    return replace(diagnosis, subjects=tuple(subjects))
