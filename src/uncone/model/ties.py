"""What a checkpoint has to hold once its head no longer shares the table's numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from uncone.errors import UnsupportedModel
from uncone.model import mapping
from uncone.model.files import ModelFiles


def parameter_keys(files: ModelFiles) -> dict[str, str]:
    """From the name of a parameter of the model class to the tensor in the file that is loaded into it unchanged.

    Raises:
        UnsupportedModel, InputError: as `find_places`, where transformers cannot build the class.
    """
    with mapping.quiet():
        return mapping.file_keys(mapping.built(files), files.tensors)


@dataclass(frozen=True)
class Parted:
    """What ends the tie of a head: `added` are {name to write: name in the file of the tensor to copy}, `head` is the head's name."""

    added: Mapping[str, str]
    head: str


def shared_names(files: ModelFiles) -> frozenset[str]:
    """The tensors in the file that are loaded into the head's parameter, or one tied to it: a checkpoint of torch.save holds several.

    Raises:
        UnsupportedModel, InputError: as `find_places`.
    """
    with mapping.quiet():
        model = mapping.built(files)
        keys, head = mapping.file_keys(model, files.tensors), model.get_output_embeddings().weight
        names = [
            name for name, parameter in model.named_parameters(remove_duplicate=False) if parameter is head
        ]
        return frozenset(keys[name] for name in names if name in keys)


def parted(files: ModelFiles) -> Parted:
    """The tensors that are missing once nothing is tied.

    A class ties more than the head: the biases of BERT's, the embeddings of T5's encoder and decoder. The class is built from a config
    that ties nothing; each parameter of it that no tensor of the file is loaded into is one that shared another's numbers.

    Raises:
        UnsupportedModel: the class ties its head whatever the config says, or as `find_places`.
    """
    with mapping.quiet():
        tied, apart = mapping.built(files), mapping.built(replace(files, config=without_ties(files.config)))
        head = apart.get_output_embeddings().weight
        if sum(parameter is head for _, parameter in apart.named_parameters(remove_duplicate=False)) > 1:
            raise UnsupportedModel(
                f"expected a class whose head can stand apart, got {type(tied).__name__}, which ties it whatever config.json says"
            )
        keys, sources = (
            mapping.file_keys(apart, files.tensors),
            _sources(tied, mapping.file_keys(tied, files.tensors)),
        )
        named = dict(apart.named_parameters())
        stored = {
            name: keys.get(name) or mapping.stored_name(apart, name)
            for name in named
            if name in keys or name in sources
        }
        added = {stored[name]: sources[name] for name in named if name not in keys and name in sources}
        (head_name,) = (stored[name] for name, parameter in named.items() if parameter is head)
        return Parted(added, head_name)


def without_ties(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with tie_word_embeddings false, in its text_config too, and wherever else it stands as true one level down."""
    parted = {
        key: {**value, "tie_word_embeddings": False}
        if isinstance(value, dict) and (key == "text_config" or "tie_word_embeddings" in value)
        else value
        for key, value in config.items()
    }
    return {**parted, "tie_word_embeddings": False}


def _sources(model: Any, keys: Mapping[str, str]) -> dict[str, str]:
    """From each parameter to the tensor in the file that it gets its numbers from, its own or one that it is tied to."""
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    found = dict[str, str]()
    for names in groups.values():
        stored = [keys[name] for name in names if name in keys]
        if stored:
            found |= dict.fromkeys(names, stored[0])
    return found
