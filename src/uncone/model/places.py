"""Which tensors of a checkpoint are the token table and the output head."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from uncone.errors import UnsupportedModel
from uncone.model.files import ModelFiles, rows_of, text_parts
from uncone.model.known_names import (
    HEAD_ENDINGS,
    TABLE_ENDINGS,
    TIED_BY_DEFAULT,
    ends_in,
    has_head,
    is_without_head,
)
from uncone.model.reasons import no_head
from uncone.rows.names import listing
from uncone.rows.safetensors import matrices


@dataclass(frozen=True)
class Places:
    """Where the token table and the output head lie, by their names in the file."""

    input: str
    head: str | None
    """None where the model has no output head, or none that the checkpoint holds; `why` says which."""
    tied: bool
    """The head and the table are the same numbers."""
    why: str
    """How this is known, or why there is no head: one sentence for users."""


def find_places(files: ModelFiles) -> Places:
    """Find the token table and the output head among the tensors of a checkpoint.

    Where exactly one matrix has `vocab_size` rows, config.json decides alone. Otherwise the model class is built by
    transformers without its weights and asked; where that is not possible, well-known tensor names decide if they leave
    no choice.

    Raises:
        UnsupportedModel: nothing of this leads to one answer, or transformers is needed and not installed; the message
            lists the tensors to choose from.
        InputError: config.json and the tensors contradict each other.
    """
    found = _from_header(files)
    if found is not None:
        return found
    from uncone.model import mapping

    try:
        located = mapping.locate(files)
    except UnsupportedModel as error:
        return _from_names(files, error)
    return _settled(files, located.input, located.head, located.why)


def _from_header(files: ModelFiles) -> Places | None:
    """What config.json and the tensors' shapes say alone, or None where they leave a doubt."""
    candidates, architecture = vocabulary_matrices(files), _architecture(files.config)
    if (
        len(candidates) != 1
        or architecture is None
        or ends_in(candidates[0], HEAD_ENDINGS)
        or _has_second_vocabulary(files)
    ):
        return None
    if is_without_head(architecture):
        if "auto_map" in files.config:
            return None  # custom code can call anything a Model
        return Places(candidates[0], None, False, no_head(architecture))
    if has_head(architecture, files.config.get("model_type")) and _is_tied(files.config):
        why = f"{architecture} shares one matrix between its token table and its output head"
        return Places(candidates[0], candidates[0], True, why)
    return None


def _from_names(files: ModelFiles, reason: UnsupportedModel) -> Places:
    """One table and one head by well-known names, or the error of the better way, with the tensors to choose from."""
    candidates, architecture = vocabulary_matrices(files), _architecture(files.config)
    tables = [name for name in candidates if ends_in(name, TABLE_ENDINGS)]
    heads = [name for name in candidates if ends_in(name, HEAD_ENDINGS)]
    if len(tables) == len(heads) == 1 and len(candidates) == 2:
        return _settled(files, tables[0], heads[0], f"told by the names of the tensors, since {reason}")
    if len(candidates) == 1 and architecture is not None and is_without_head(architecture) and not heads:
        return Places(
            candidates[0],
            None,
            False,
            f"whether {architecture} has an output head is not known, since {reason}",
        )
    raise UnsupportedModel(f"{reason}; {_way_out(files, candidates)}") from reason


def _way_out(files: ModelFiles, candidates: list[str]) -> str:
    """The tensors to choose from: those with vocabulary-many rows, or all that can be opened, the longest first."""
    known = matrices(files.entries)
    choice = candidates or sorted(known, key=lambda name: (-known[name].shape[0], name))
    if not choice:
        return "and no tensor of the model is a matrix of floats: dequantise or convert it first"
    return f"or name the tensor yourself, for instance {files.path}#{choice[0]}: there are {listing(choice)}"


def _settled(files: ModelFiles, table: str, head: str | None, why: str) -> Places:
    """`tied` from what is stored: transformers 5 ties two stored matrices only where they are equal, whatever the flag says."""
    tied = head is not None and (head == table or same_rows(files, table, head))
    return Places(table, head, tied, why)


def same_rows(files: ModelFiles, first: str, second: str) -> bool:
    """Two matrices of the files hold the same numbers."""
    a, b = rows_of(files, first), rows_of(files, second)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return all(bool((x == y).all()) for x, y in zip(a.blocks(), b.blocks(), strict=True))


def vocabulary_matrices(files: ModelFiles) -> list[str]:
    """The matrices of floats with `vocab_size` rows, in the file's order of names."""
    size = files.vocab_size
    return sorted(name for name, entry in matrices(files.entries).items() if entry.shape[0] == size)


def _architecture(config: Mapping[str, Any]) -> str | None:
    """The one class that config.json names."""
    names = config.get("architectures")
    if isinstance(names, list) and len(names) == 1 and isinstance(names[0], str) and names[0].isidentifier():
        return str(names[0])
    return None


def _is_tied(config: Mapping[str, Any]) -> bool:
    """The flag says yes everywhere it stands; or it stands nowhere and the class's default is known to be yes."""
    flags = [part["tie_word_embeddings"] for part in text_parts(config) if "tie_word_embeddings" in part]
    if "text_config" in config and "tie_word_embeddings" not in config:
        return False
    kind = config.get("model_type")
    return all(flag is True for flag in flags) if flags else isinstance(kind, str) and kind in TIED_BY_DEFAULT


def _has_second_vocabulary(files: ModelFiles) -> bool:
    """An encoder and a decoder with vocabularies of their own: Marian's `decoder_vocab_size`, FSMT's `tgt_vocab_size`."""
    sizes = {
        key: value
        for key, value in files.config.items()
        if key.endswith("vocab_size") and not key.startswith("type_")
    }
    return any(value not in (None, files.vocab_size) for value in sizes.values())
