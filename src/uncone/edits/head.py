"""Centre an output head: the exact edit that changes no probability, written only once that is proven on the model itself.

Logits are z = W h + b. Subtracting one vector v from every row of W gives z - (h . v) 1, and softmax(z - c 1) = softmax(z): so log-probabilities,
arg max, sampling and the loss stay. With v the mean row, W gets as small as such a change can make it. Where W is the token table
too, the lookup moves by -v; that is undone by adding v to a table that is always added to it, or by storing the head apart.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from uncone.atomic import creatable
from uncone.edits.head_checks import OTHERS, check_dtype, invariant_map, linear_head, warnings_of
from uncone.edits.head_effects import head_rows, rounding_errors
from uncone.edits.head_tables import find_compensation, lookups, reads_token_types
from uncone.edits.model_files import Copy, compare_untouched, edited_copy, open_directory
from uncone.edits.model_shards import NewTensor, as_stored, rows_at_once
from uncone.edits.proof import Run, compare, require, run, wide_product
from uncone.edits.proof_text import ProofText, proof_text
from uncone.errors import InputError, UnsupportedModel
from uncone.model import ModelFiles, find_places, rows_of
from uncone.model.model_class import load_model
from uncone.model.ties import parameter_keys, parted, shared_names, without_ties
from uncone.records.head_edit import HeadEdit, HeadProof
from uncone.rows import Rows, nonfinite_rows
from uncone.rows.bytes import LocalFile
from uncone.rows.safetensors import Entry

Tensor = torch.Tensor
Progress = Callable[[str, int, int], None]
_PROVEN_IN = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Plan:
    """What is to be written."""

    way: Literal["untied", "folded", "parted"]
    tensors: Mapping[str, NewTensor]
    head: str
    """Where the centred rows stand in the copy."""
    table: str
    mean: Tensor
    folded_into: tuple[str, ...] = ()
    config: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


def center_head(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    untie: bool = False,
    text: str | os.PathLike[str] | None = None,
    dtype: str | None = None,
    progress: Progress | None = None,
) -> HeadEdit:
    """Write a copy of a model whose head's rows have mean zero: the same probabilities, proven before anything is published.

    The mean row, in float64, is subtracted from every row, padded ones included, as they all enter the softmax; the result is rounded once
    to the stored dtype, and the bias stays. Then original and edited model run on the same text and random ids. The proof holds where the
    edited model's log-probabilities lie as near to exact ones as the original's do, within one and a half times its largest error and what it takes to
    write the largest logit in the dtype, and where the same token comes first at every position (but for ties within rounding, which are counted).

    Args:
        model: a directory of transformers (config.json, safetensors or a checkpoint of torch.save) with a linear head.
        out: the directory to write. It must not exist; it appears whole or not at all.
        untie: where the head shares the table's rows, store it apart: V x D more numbers.
        text: a text in UTF-8 for the proof; None for a sample that is part of uncone, or random ids where there is no tokenizer.
        dtype: in which the proof runs ("float32", "bfloat16", "float16"); None for that of the model, and for float32 where that is float64, as
            nothing wider would be left to measure its rounding with. What is stored keeps its own.
        progress: called with what is done, how much is, and of how much.

    Returns:
        `HeadEdit`: the proof's figures, what rounding does to the head before and after, warnings.

    Raises:
        InputError: no such model, `out` exists or cannot be written, rows that are not finite, a GGUF model.
        UnsupportedModel: a capped, quantised or non-linear head, an adapter; a tied head that no table can take the mean of, without
            `untie`; a proof that fails.
    """
    creatable(out, outside=model)
    files = open_directory(model)
    places = find_places(files)
    if places.head is None:
        raise UnsupportedModel(
            f"expected a model with an output head in its files, got {files.path}: {places.why}"
        )
    check_dtype(files, places.head)
    original = load_model(files, dtype=_dtype(dtype))
    if original.dtype == torch.float64:
        original, dtype = original.float(), "float32"
    head = linear_head(original)
    scale = invariant_map(original, head).scale
    ids = proof_text(
        files, original, min(original.get_input_embeddings().num_embeddings, len(head.weight)), text
    )
    before, is_tied = run(original, ids, tell=progress), bool(lookups(original))
    if is_tied and not untie:
        del original, head
        wide = torch.float64 if before.dtype in (torch.float32, torch.float64) else torch.float32
        original, how = (
            load_model(files, dtype=wide),
            f"the whole original in {str(wide).removeprefix('torch.')}",
        )
        reference = _wide_run(original, ids, progress)
        plan = _folded(files, original, ids, places.head)
    else:  # the input of the head stays as it is, so only its product is in question
        plan = _parted(files, places.head) if is_tied else _untied(files, places.head, asked=untie)
        how = "the original's own hidden states times its head in float64"
        reference = run(original, ids, product=wide_product(head.weight, head.bias), tell=progress)
        del head
    del original
    with edited_copy(files, out, plan.tensors, beside=places.head, config=plan.config) as copy:
        after = run(load_model(copy.files, dtype=_dtype(dtype)), ids, tell=progress)
        proof = compare(before, after, reference, text=ids.name, how=how)
        require(proof)
        return _record(files, copy, plan, proof, before, scale)


def _record(
    files: ModelFiles, copy: Copy, plan: Plan, proof: HeadProof, before: Run, scale: float
) -> HeadEdit:
    source = plan.head if plan.head in files.tensors else plan.table
    first, second = rows_of(files, source), rows_of(copy.files, plan.head)
    shapes, notes = (head_rows(first), head_rows(second)), plan.notes
    effects = rounding_errors(first, second, plan.mean, before.hidden, (shapes[0].largest, shapes[1].largest))
    if scale != 1:
        notes = (*notes, f"The model multiplies its logits by {scale:g}; that changes nothing of this.")
    if all(effect.after >= effect.before for effect in effects):
        notes = (
            *notes,
            "No kind of rounding that was measured errs less on the centred head: for this model the edit helps cosines only.",
        )
    return HeadEdit(
        name=files.path.resolve().name, head=plan.head, n=first.shape[0], d=first.shape[1], dtype=first.dtype, way=plan.way,
        folded_into=plan.folded_into, added=tuple(sorted(set(plan.tensors) - set(files.tensors))), before=shapes[0],
        after=shapes[1], proof=proof, effects=effects,
        unchanged=compare_untouched(files, copy.files, frozenset(plan.tensors)), warnings=warnings_of(files),
        notes=(*notes, OTHERS), left_out=copy.left_out,
    )  # fmt: skip


def _wide_run(model: Any, ids: ProofText, progress: Progress | None) -> Run:
    try:
        return run(model, ids, tell=progress)
    except UnsupportedModel as error:
        raise UnsupportedModel(
            f"expected a model that also runs in a wider dtype, to measure its rounding, got one that does not ({error}): store the head apart with "
            "--untie (untie=True), whose proof needs no such run"
        ) from error


def _untied(files: ModelFiles, head: str, *, asked: bool) -> Plan:
    rows = rows_of(files, head)
    mean = mean_row(rows)
    notes = ("The head is a matrix of its own already: there was nothing to untie.",) if asked else ()
    return Plan("untied", {head: shifted(files, head, -mean)}, head, head, mean, notes=notes)


def _folded(files: ModelFiles, wide: Any, ids: ProofText, table: str) -> Plan:
    """The mean out of the shared rows, and into the tables that are added to them."""
    keys = parameter_keys(files)
    found = find_compensation(wide, ids, keys)
    if found is None:
        raise _no_table(files, wide, table)
    mean = mean_row(rows_of(files, table))
    folded = tuple(keys[name] for name in found.tables)
    shared = {name: shifted(files, name, -mean) for name in shared_names(files) | {table}}
    taken = {name: shifted(files, name, found.factor * mean) for name in folded}
    notes = [
        "Vectors that are given to the model in the place of the table's rows (inputs_embeds, prompt tuning) need the mean subtracted too."
    ]
    if reads_token_types(wide, ids, found):
        notes.append(
            "The model looks token_type_ids up in the token table: inputs that give them are changed by the edit. Leave them out, or use --untie."
        )
    return Plan("folded", shared | taken, table, table, mean, folded, notes=tuple(notes))


def _no_table(files: ModelFiles, model: Any, table: str) -> UnsupportedModel:
    expected = (
        f"expected a learned table of positions or token types that {type(model).__name__} always adds to a token's row, and that could take the "
        "mean, got none (its head shares the token table's rows)"
    )
    try:
        parted(files)
    except UnsupportedModel as error:
        return UnsupportedModel(f"{expected}; nor can the head be stored apart: {error}")
    n, d = files.entries[table].shape
    return UnsupportedModel(
        f"{expected}: store the head apart with --untie (untie=True), which adds {n} x {d} numbers"
    )


def _parted(files: ModelFiles, table: str) -> Plan:
    """A head of its own beside the table, which stays."""
    mean, ends = mean_row(rows_of(files, table)), parted(files)
    tensors = {
        name: as_stored(*_stored(files, source)) for name, source in ends.added.items() if name != ends.head
    }
    tensors[ends.head] = shifted(files, table, -mean)
    n, d = files.entries[table].shape
    notes = (f"The head shared the token table's rows and stands apart now: {n} x {d} numbers more.",)
    return Plan("parted", tensors, ends.head, table, mean, config=without_ties(files.config), notes=notes)


def _stored(files: ModelFiles, name: str) -> tuple[LocalFile, str, Entry]:
    source, entry = files.tensors[name]
    assert isinstance(source, LocalFile)
    return source, name, entry


def mean_row(rows: Rows) -> Tensor:
    """The mean (D,) in float64.

    Raises:
        InputError: a row is not finite.
    """
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for block in rows.blocks(rows_at_once(rows.shape[1])):
        total += block.double().sum(0)
    if not bool(torch.isfinite(total).all()):
        bad = nonfinite_rows(rows).tolist()
        raise InputError(
            f"expected finite rows in {rows.name}, got NaN or inf in {len(bad)} ({', '.join(map(str, bad[:5]))}{', ...' if len(bad) > 5 else ''}): set them "
            "anew first, with `uncone repair-tokens`"
        )
    return total / rows.shape[0]


def shifted(files: ModelFiles, name: str, vector: Tensor) -> NewTensor:
    """The tensor with `vector` (D,) added to each row in float64."""
    entry, rows = files.entries[name], rows_of(files, name)

    def blocks() -> Iterator[Tensor]:
        for block in rows.blocks(rows_at_once(rows.shape[1])):
            yield block.double() + vector

    return NewTensor(entry.dtype, entry.shape, blocks)


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    if name not in _PROVEN_IN:
        raise InputError(
            f"expected the dtype of the proof to be one of {', '.join(_PROVEN_IN)}, got {name!r}: leave it out for the model's own"
        )
    return _PROVEN_IN[name]
