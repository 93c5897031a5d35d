"""Centre an output head: an exact edit that changes no probability.

    (W - 1 v') h + b = z - (h . v) 1,    softmax(z - c 1) = softmax(z)

With v the mean row, W gets as small as it can. Where W is also the token table, the lookup moves by -v: v is then added
to a table that the model always adds to the lookup, or the head is stored separately.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch

from uncone.atomic import creatable
from uncone.edits.proof import ProofText, compare, proof_text, require, run, wide_product
from uncone.edits.record import HeadEdit
from uncone.edits.rounding import head_rows, rounding_errors
from uncone.edits.tied import find_compensation, lookups, reads_token_types
from uncone.errors import InputError, UnsupportedModel
from uncone.model import ModelFiles, find_places, rows_of
from uncone.model.directory import (
    NewTensor,
    as_stored,
    compare_untouched,
    edited_copy,
    open_directory,
    rows_at_once,
    some_of,
    whole_model,
)
from uncone.model.files import read_json
from uncone.model.head_map import HeadMap, logit_map
from uncone.model.model_class import load_model, objects, parameter_keys, parted, shared_names, without_ties
from uncone.roles import Path_, Progress
from uncone.rows import Rows, nonfinite_rows
from uncone.rows.names import listing
from uncone.rows.safetensors import FLOATS
from uncone.tensors import blocks_of

Tensor = torch.Tensor
OTHERS = (
    "Code that reads raw logits, not probabilities, sees them shifted by one number per position. Examples: "
    "distillation on squared logits, energy or logsumexp scores, contrastive decoding without a softmax."
)
_NO_EFFECT = (
    "No kind of rounding measured here has a smaller error on the centred head, so the edit helps only cosines."
)
_EMBEDDINGS = "Vectors that replace rows of the table (inputs_embeds, prompt tuning) need the mean subtracted too."
_TOKEN_TYPES = (
    "The model looks up token_type_ids in the token table, so the edit changes inputs that have token_type_ids. Leave "
    "them out, or use --untie."
)
_READERS = {"repetition_penalty": 1.0, "encoder_repetition_penalty": 1.0, "exponential_decay_length_penalty": None}
"""Generation settings that read raw logits, each with the value that does nothing."""
_PROVEN_IN = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class _Layout:
    way: Literal["untied", "folded", "parted"]
    tensors: Mapping[str, NewTensor]
    head: str
    notes: tuple[str, ...] = ()
    folded_into: tuple[str, ...] = ()
    config: Mapping[str, Any] | None = None


def centred_copy(
    model: Path_, out: Path_, *, untie: bool, text: Path_ | None, dtype: str | None, progress: Progress | None
) -> HeadEdit:
    directory = whole_model(model)
    creatable(out, outside=directory)
    files = open_directory(directory)
    head_name = _head_of(files)
    proven_in = None
    if dtype is not None and (proven_in := _PROVEN_IN.get(dtype)) is None:
        got = f"got {dtype!r}: leave it out for the model's own"
        raise InputError(f"expected the dtype of the proof to be one of {', '.join(_PROVEN_IN)}, {got}")
    original = load_model(files, dtype=proven_in)
    if original.dtype == torch.float64:
        original, proven_in = original.float(), torch.float32
    head = linear_head(original)
    scale = invariant_map(original, head).scale
    ids = proof_text(files, original, min(original.get_input_embeddings().num_embeddings, len(head.weight)), text)
    before, is_tied = run(original, ids, tell=progress), bool(lookups(original))
    mean = _mean_row(rows_of(files, head_name))
    if is_tied and not untie:
        del original, head
        wide = torch.float64 if before.dtype in (torch.float32, torch.float64) else torch.float32
        original, how = load_model(files, dtype=wide), f"the whole original in {str(wide).removeprefix('torch.')}"
        try:
            reference = run(original, ids, tell=progress)
        except UnsupportedModel as error:
            got = f"got one that does not ({error}): store the head separately with --untie (untie=True)"
            raise UnsupportedModel(f"expected a model that also runs in a wider dtype, for the proof, {got}") from error
        layout = _folded(files, original, ids, head_name, mean)
    else:  # the head's input stays as it is, so only its product needs a check
        alone = _Layout("untied", {head_name: shifted(files, head_name, -mean)}, head_name)
        layout = _parted(files, head_name, mean) if is_tied else alone
        how = "the original's own hidden states times its head in float64"
        reference = run(original, ids, product=wide_product(head.weight, head.bias), tell=progress)
        del head
    del original
    with edited_copy(files, out, layout.tensors, beside=head_name, config=layout.config) as copy:
        proof = compare(
            before, run(load_model(copy.files, dtype=proven_in), ids, tell=progress), reference, text=ids.name, how=how
        )
        require(proof)
        sides = rows_of(files, head_name), rows_of(copy.files, layout.head)
        shapes, notes = (head_rows(sides[0]), head_rows(sides[1])), layout.notes
        effects = rounding_errors(sides, mean, before.hidden, (shapes[0].largest, shapes[1].largest))
        if untie and not is_tied:
            notes += ("The head was a separate matrix already, so there was nothing to untie.",)
        if scale != 1:
            notes += (f"The model multiplies its logits by {scale:g}. This does not affect the result.",)
        if all(effect.after >= effect.before for effect in effects):
            notes += (_NO_EFFECT,)
        return HeadEdit(
            files.path.resolve().name,
            layout.head,
            *sides[0].shape,
            sides[0].dtype,
            layout.way,
            layout.folded_into,
            tuple(sorted(layout.tensors.keys() - files.tensors.keys())),
            *shapes,
            proof,
            effects,
            compare_untouched(files, copy.files, frozenset(layout.tensors)),
            _warnings(files),
            (*notes, OTHERS),
            copy.left_out,
        )


def _head_of(files: ModelFiles) -> str:
    places = find_places(files)
    if places.head is None:
        raise UnsupportedModel(f"expected a model with an output head in its files, got {files.path}: {places.why}")
    stored = files.entries[places.head].dtype
    if stored not in FLOATS:
        got = f"got {places.head!r} of {stored}: dequantise the head, or edit the model that was quantised"
        raise UnsupportedModel(f"expected the head in floating point, {got}")
    return places.head


def _folded(files: ModelFiles, wide: Any, ids: ProofText, table: str, mean: Tensor) -> _Layout:
    keys = parameter_keys(files)
    compensation = find_compensation(wide, ids, keys)
    if compensation is None:
        raise _no_table(files, wide, table)
    taken = {keys[name]: shifted(files, keys[name], n * mean) for name, n in compensation.items()}
    shared = {name: shifted(files, name, -mean) for name in shared_names(files) | {table}}
    notes = (_EMBEDDINGS, _TOKEN_TYPES) if reads_token_types(wide, ids, compensation) else (_EMBEDDINGS,)
    return _Layout("folded", shared | taken, table, notes, tuple(taken))


def _no_table(files: ModelFiles, model: Any, table: str) -> UnsupportedModel:
    expected = (
        f"expected a learned table of positions or token types that {type(model).__name__} always adds to a token's "
        "row, so that it can take the mean, got none (its head shares the token table's rows)"
    )
    try:
        parted(files)
    except UnsupportedModel as error:
        return UnsupportedModel(f"{expected}. The head cannot be stored separately either: {error}")
    n, d = files.entries[table].shape
    how = f"store the head separately with --untie (untie=True), which adds {n} x {d} numbers"
    return UnsupportedModel(f"{expected}: {how}")


def _parted(files: ModelFiles, table: str, mean: Tensor) -> _Layout:
    added, head = parted(files)
    tensors = {name: as_stored(*files.tensors[source], source) for name, source in added.items()}
    tensors[head] = shifted(files, table, -mean)
    n, d = files.entries[table].shape
    notes = (f"The head shared the token table's rows and is separate now, which adds {n} x {d} numbers.",)
    return _Layout("parted", tensors, head, notes, config=without_ties(files.config))


def _mean_row(rows: Rows) -> Tensor:
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for block in blocks_of(rows, rows_at_once(rows.shape[1])):
        total += block.double().sum(0)
    if not bool(torch.isfinite(total).all()):
        got = f"got NaN or inf in {some_of(nonfinite_rows(rows).tolist())}"
        how = "give them new rows first, with `uncone repair-tokens`"
        raise InputError(f"expected finite rows in {rows.name}, {got}: {how}")
    return total / rows.shape[0]


def shifted(files: ModelFiles, name: str, vector: Tensor) -> NewTensor:
    """The tensor with `vector` (D,) added to each row in float64."""
    entry, rows = files.entries[name], rows_of(files, name)

    def blocks() -> Iterator[Tensor]:
        for block in blocks_of(rows, rows_at_once(rows.shape[1])):
            yield block.double() + vector

    return NewTensor(entry.dtype, entry.shape, blocks)


def linear_head(model: Any) -> torch.nn.Linear:
    head = None
    with suppress(NotImplementedError, AttributeError):
        head = model.get_output_embeddings()
    if head is None:
        raise UnsupportedModel(
            f"expected a model with an output head, got {type(model).__name__} without one: there is nothing to centre"
        )
    if not isinstance(head, torch.nn.Linear) or not head.weight.dtype.is_floating_point:
        how = "subtracting a vector from its rows could change probabilities"
        raise UnsupportedModel(f"expected a linear head in floating point, got {type(head).__name__}: {how}")
    return head


def invariant_map(model: Any, head: torch.nn.Linear) -> HeadMap:
    """The map from the head's output to the logits, where a constant added to all logits changes no probability."""
    try:
        logits = logit_map(model, head)
    except UnsupportedModel as error:
        got = f"got {type(model).__name__}: {error}"
        raise UnsupportedModel(
            f"expected logits that are the head's output times a number plus a bias, {got}"
        ) from error
    if logits.cap is not None:
        raise UnsupportedModel(
            f"expected logits that are linear in the head's output, got {type(model).__name__}, which caps them softly "
            f"at {logits.cap:g} (cap tanh(z / cap)): a constant added to all logits would change probabilities"
        )
    return logits


def _warnings(files: ModelFiles) -> tuple[str, ...]:
    settings = dict(files.config)  # of older versions
    path = files.path / "generation_config.json"
    if path.is_file():
        with suppress(InputError):  # transformers would not read it either
            settings |= read_json(path, dict)
    warnings = [
        f"generation_config.json sets {name} to {str(settings[name])[:40]}. It divides or multiplies raw logits by "
        "their sign or size, so the edited model generates differently. Turn it off, or keep the original."
        for name, neutral in _READERS.items()
        if settings.get(name) not in (None, neutral)
    ]
    z_losses = {
        key
        for part in objects(files.config)
        for key, value in part.items()
        if "z_loss" in key and "router" not in key and isinstance(value, int | float) and value
    }
    if z_losses:
        warnings.append(
            f"config.json sets {listing(sorted(z_losses))}. A z-loss keeps the sum of the logits' exponentials near 1. "
            "The edit changes that sum, so further training would start with a different loss."
        )
    return tuple(warnings)
