"""Which tensor of a file is loaded into which parameter, which parameters share one, and what a checkpoint
holds once they do not.

Module names are no file keys: GPT-NeoX writes its `lm_head` as `embed_out`, a tied head is not written at
all. So the model class is built without weights, and the file's keys are translated the way from_pretrained
translates them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from uncone.errors import UnsupportedModel
from uncone.model.files import ModelFiles
from uncone.model.hugging_face import asked
from uncone.model.model_class import build


def file_keys(model: Any, names: Iterable[str]) -> dict[str, str]:
    """From a parameter's name to the tensor among `names` of the file that is loaded into it unchanged."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    keys: dict[str, str] = {}
    with asked(f"place the tensors of {type(model).__name__}"):
        transforms = get_model_conversion_mapping(model)
        renamings = [item for item in transforms if isinstance(item, WeightRenaming)]
        converters = [item for item in transforms if isinstance(item, WeightConverter)]
        state, prefix = model.state_dict(), model.base_model_prefix
        for key in sorted(names):
            name, converted = rename_source_key(key, renamings, converters, prefix, state)
            if name not in state and key in state:  # the renaming was not meant for this key
                name, converted = rename_source_key(key, [], [], prefix, state)
            if name in state and converted is None:
                keys.setdefault(name, key)
    return keys


def parameter_keys(files: ModelFiles) -> dict[str, str]:
    """From a parameter's name to the tensor of the file that is loaded into it unchanged.

    Raises:
        UnsupportedModel, InputError: as `find_places`, where transformers cannot build the class.
    """
    return file_keys(build(files), files.tensors)


def shared_names(files: ModelFiles) -> frozenset[str]:
    """The tensors loaded into the head's parameter or one tied to it: torch.save writes several.

    Raises:
        UnsupportedModel, InputError: as `find_places`.
    """
    model = build(files)
    keys, head = file_keys(model, files.tensors), model.get_output_embeddings().weight
    return frozenset(keys[name] for name in names_of(model, head) if name in keys)


def names_of(model: Any, parameter: Any) -> list[str]:
    """All names of a parameter of the model."""
    return [name for name, other in model.named_parameters(remove_duplicate=False) if other is parameter]


@dataclass(frozen=True)
class Parted:
    """What ends the tie of a head."""

    added: Mapping[str, str]
    """From the name of a tensor to write to the tensor of the file to copy."""
    head: str
    """The name of the head among them."""


def parted(files: ModelFiles) -> Parted:
    """The tensors that are missing once nothing is tied.

    A class ties more than the head: the biases of BERT's, the embeddings of T5's encoder and decoder. The
    class is built from a config that ties nothing; each parameter of it that no tensor of the file is loaded
    into shared another's numbers.

    Raises:
        UnsupportedModel: the class ties its head whatever the config says, or as `find_places`.
    """
    from transformers.core_model_loading import revert_weight_conversion

    tied, apart = build(files), build(replace(files, config=without_ties(files.config)))
    head = apart.get_output_embeddings().weight
    if len(names_of(apart, head)) > 1:
        raise UnsupportedModel(
            f"expected a class whose head can stand apart, got {type(tied).__name__}, "
            "which ties it whatever config.json says"
        )
    keys, sources = file_keys(apart, files.tensors), _sources(tied, file_keys(tied, files.tensors))
    stored = dict(keys)
    added = dict[str, str]()
    with asked(f"name the tensors of {type(tied).__name__}"):
        for name, parameter in apart.named_parameters():
            if name not in keys and name in sources:
                ((stored[name], _),) = revert_weight_conversion(apart, {name: parameter}).items()
                added[stored[name]] = sources[name]
    return Parted(added, stored[names_of(apart, head)[0]])


def without_ties(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with tie_word_embeddings false, in its text_config and wherever it stands one level down."""
    inner = {
        key: {**value, "tie_word_embeddings": False}
        for key, value in config.items()
        if isinstance(value, dict) and (key == "text_config" or "tie_word_embeddings" in value)
    }
    return {**config, **inner, "tie_word_embeddings": False}


def _sources(model: Any, keys: Mapping[str, str]) -> dict[str, str]:
    """From each parameter to the tensor of the file with its numbers, its own or that of one tied to it."""
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    sources = dict[str, str]()
    for names in groups.values():
        stored = [keys[name] for name in names if name in keys]
        if stored:
            sources |= dict.fromkeys(names, stored[0])
    return sources
