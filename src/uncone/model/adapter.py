"""A PEFT adapter: which matrices it holds whole, and how to reach the others."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.model.files import ADAPTER, ModelFiles, open_single, read_json, rows_of, token_labels
from uncone.model.hugging_face import cached_snapshot
from uncone.model.places import HEADS, TABLES, ends_in
from uncone.rows import Rows
from uncone.rows.names import listing
from uncone.rows.open import is_there
from uncone.rows.safetensors import matrices

_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_KINDS = {"input": ("token table", TABLES), "head": ("output head", HEADS)}
_OF_A_PART = ("lora_", "token_adapter", "base_layer")  # how PEFT names modules under one that it changes in part
_AUTO = {
    "SEQ_2_SEQ_LM": "ForSeq2SeqLM",
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "FEATURE_EXTRACTION": "ForFeatureExtraction",
    "QUESTION_ANS": "ForQuestionAnswering",
}
"""What follows AutoPeftModel in the class for a task, where that is not ForCausalLM."""


@dataclass(frozen=True)
class Adapter:
    files: ModelFiles
    base: str | None  # as adapter_config.json names it, or NAME@REVISION
    base_at: Path | None  # on this machine

    @property
    def tables(self) -> dict[str, str]:
        """The tensors of the "input" table and the "head" that are held whole."""
        found = {kind: self._whole(names) for kind, (_, names) in _KINDS.items()}
        return {kind: tensor for kind, tensor in found.items() if tensor}

    def matrix(self, part: str, *, by_kind: bool = False) -> tuple[str, Rows]:
        """The kind ("input", "head" or "rows") and rows of a tensor. `by_kind`: a table's own name gives its kind."""
        if part in self.tables:
            return part, self._rows(self.tables[part])
        if part in _KINDS:
            raise self._missing(f"the {_KINDS[part][0]}", "it", [_KINDS[part]])
        kind = next((kind for kind, tensor in self.tables.items() if tensor == part and by_kind), "rows")
        return kind, self._rows(part)

    def whole_tables(self) -> dict[str, Rows]:
        if not self.tables:
            raise self._missing("a token table or an output head", "either", list(_KINDS.values()))
        return {kind: self._rows(tensor) for kind, tensor in self.tables.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """What is read and what is not, without paths of this machine."""
        read = " and the ".join(_KINDS[kind][0] for kind in self.tables)
        away = [kind for kind in _KINDS if kind not in self.tables]
        base = self.base and "/".join(self.base.rstrip("/").split("/")[-2:])
        notes = [f"This is {self._kind(base)}. uncone reads the {read} in it."]
        for kind in away:
            what, names = _KINDS[kind]
            way = "changed in part: merge the adapter into its base and diagnose the result"
            notes.append(f"The {what} is {way if self._in_part(names) else 'in the base: diagnose the base too'}.")
        return (*notes, f"Open other matrices by name, as ADAPTER#NAME: {self._others()}.")

    def _rows(self, tensor: str) -> Rows:
        rows = rows_of(self.files, tensor)
        if tensor in self.tables.values():
            rows.load_labels = partial(_labels, rows.shape[0], self.files.path, self.base_at)
        return rows

    def _whole(self, names: tuple[str, ...]) -> str | None:
        """The only matrix of a module with one of these names, if no other tensor changes it."""
        found = [name for name in matrices(self.files.entries) if ends_in(name, names)]
        return found[0] if len(found) == 1 and not self._in_part(names) else None

    def _in_part(self, names: tuple[str, ...]) -> bool:
        """Whether the adapter changes a module with one of these names by low rank, or changes some of its rows."""
        pairs = (pair for name in self.files.entries for pair in pairwise(name.split(".")))
        return any(module in names and under.startswith(_OF_A_PART) for module, under in pairs)

    def _kind(self, base: str | None) -> str:
        kind = str(self.files.config.get("peft_type"))[:40]
        return f"a PEFT adapter ({kind}) for {base or 'an unnamed base'}"

    def _missing(self, what: str, which: str, kinds: list[tuple[str, tuple[str, ...]]]) -> InputError:
        in_part = [table for table, names in kinds if self._in_part(names)]
        of_base = [table for table, _ in kinds if table not in in_part]
        ways = []
        if in_part:
            ways.append(f"It changes the {' and the '.join(in_part)} in part, so merge it: {self._merge()}")
        if of_base:
            run = "it is not on this machine, and uncone downloads nothing"
            if self.base is not None and self.base_at is not None:
                run = f"run uncone diagnose {shlex.quote(self.base)}"
            ways.append(f"The base has the {' and the '.join(of_base)}: {run}")
        return InputError(
            f"expected {what}, got {self.files.path}, {self._kind(self.base)} that does not hold {which} "
            f"whole. {'. '.join(ways)}. Open other matrices as {self.files.path}#NAME: {self._others()}"
        )

    def _merge(self) -> str:
        task, path = self.files.config.get("task_type"), str(self.files.path)
        is_mapped = task is None and isinstance(self.files.config.get("auto_mapping"), dict)
        kind = "AutoPeftModel" + ("" if is_mapped else _AUTO.get(str(task), "ForCausalLM"))
        merged = f"M.from_pretrained({json.dumps(path)}).merge_and_unload()"
        code = f"from peft import {kind} as M; {merged}.save_pretrained({json.dumps(path + '-merged')})"
        return f"python -c {shlex.quote(code)}"

    def _others(self) -> str:
        names = sorted(name for name in matrices(self.files.entries) if name not in self.tables.values())
        return listing(names, 2) or "there are none"


def open_adapter(directory: Path) -> Adapter:
    config: Mapping[str, Any] = read_json(directory / ADAPTER, dict)
    weights = next((directory / name for name in _WEIGHTS if (directory / name).is_file()), None)
    if weights is None:
        raise InputError(f"expected {_WEIGHTS[0]} next to {ADAPTER} in {directory}, got none: copy it too")
    files = ModelFiles(directory, config, open_single(weights))
    base, revision = (_plain(config.get(key)) for key in ("base_model_name_or_path", "revision"))
    if base is None or is_there(base):
        return Adapter(files, base, None if base is None else Path(base))
    base = base if revision is None else f"{base}@{revision}"
    return Adapter(files, base, cached_snapshot(base))


def _labels(n: int, *folders: Path | None) -> list[str | None] | None:
    return next(filter(None, (token_labels(folder, n).labels for folder in folders if folder is not None)), None)


def _plain(name: object) -> str | None:
    """The name, if it is safe in a message: anyone may have written the file."""
    return name if isinstance(name, str) and 0 < len(name) <= 300 and name.isprintable() else None
