"""Ask transformers where the table and the head lie. The only file that knows its internal interfaces (version 5).

Module names are no file keys: GPT-NeoX writes its `lm_head` as `embed_out`, a tied head is not written at all. So the model
class is built without weights, and the file's keys are translated the way from_pretrained translates them.
"""

import copy
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from uncone.errors import InputError, UnconeError, UnsupportedModel
from uncone.model.bounds import bounded_construction, check_sizes, objects
from uncone.model.files import ModelFiles
from uncone.model.reasons import first_line, no_head
from uncone.rows.names import listing
from uncone.rows.safetensors import matrices

INSTALL = "pip install 'uncone[hf]'"
# Settings that choose a kernel to download, a quantiser or pretrained parts; none of them moves the table or the head.
_LEFT_OUT = re.compile(
    r"_?(attn|experts)_implementation\w*|(quantization|compression)_config|auto_map|use_pretrained_backbone"
)


class Located(NamedTuple):
    """The names in the file of the table and of the head, and how they are known (or why there is no head)."""

    input: str
    head: str | None
    why: str


def locate(files: ModelFiles) -> Located:
    """The table and the head of the model class that config.json names, by their names in the file.

    Raises:
        UnsupportedModel: transformers is missing or too old, the class is unknown to it or custom code, or it cannot be
            built from this config, or its table is put together from several tensors.
        InputError: config.json is absurd, or contradicts the shapes in the file.
    """
    check_sizes(files.config)
    try:
        import transformers.conversion_mapping  # noqa: F401 - version 4 has none
    except ImportError as error:
        raise UnsupportedModel(
            f"telling the token table from the output head needs transformers 5: {INSTALL}"
        ) from error
    with quiet():
        model = built(files)
        keys = file_keys(model, matrices(files.entries))
    with _asked(f"place the tensors of {type(model).__name__}"):
        return _located(model, keys, files)


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings, no log lines, no network while transformers builds a model."""
    import huggingface_hub.constants as hub

    logger = logging.getLogger("transformers")
    level, offline = logger.level, hub.HF_HUB_OFFLINE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            logger.setLevel(logging.CRITICAL + 1)
            hub.HF_HUB_OFFLINE = True
            yield
        finally:
            logger.setLevel(level)
            hub.HF_HUB_OFFLINE = offline


def built(files: ModelFiles) -> Any:
    """The model on the meta device: its modules and names, no weights."""
    model_class = model_class_of(files)
    with (
        _asked(f"build {model_class.__name__} from its config.json"),
        torch.device("meta"),
        bounded_construction(),
    ):
        return model_class(config_for(model_class, files.config))


@contextmanager
def _asked(what: str) -> Iterator[None]:
    """transformers raises whatever a config with settings of another type makes it raise."""
    try:
        yield
    except UnconeError:
        raise
    except Exception as error:
        raise UnsupportedModel(f"transformers cannot {what} ({first_line(error)})") from error


def model_class_of(files: ModelFiles) -> Any:
    """The class of transformers that config.json names; code that comes with a model is never run."""
    import transformers

    names = files.config.get("architectures") or []
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    if name is None:
        return _base_class(files)
    try:
        found = getattr(transformers, name, None) if name.isidentifier() else None
    except Exception as error:  # a lazy import that misses a package of its own
        raise UnsupportedModel(f"transformers cannot load the class {name} ({first_line(error)})") from error
    if not _ismodel_class_of(found):
        raise UnsupportedModel(
            f"the class {name!r} in config.json is not part of transformers {transformers.__version__}, "
            "and code that comes with a model is never run: a newer transformers may know it"
        )
    return found


def _ismodel_class_of(found: Any) -> bool:
    from transformers import PreTrainedModel

    return (
        isinstance(found, type)
        and issubclass(found, PreTrainedModel)
        and getattr(found, "config_class", None) is not None
    )


def _base_class(files: ModelFiles) -> Any:
    """Without `architectures`: the bare model of the model type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    kind = files.config.get("model_type")
    try:
        found = MODEL_MAPPING[CONFIG_MAPPING[kind]]
    except Exception as error:  # unknown kinds are KeyErrors, of a kind that misses a package anything
        raise UnsupportedModel(
            f"config.json names no architecture and the model type {kind!r}, which transformers does not build"
        ) from error
    return found[0] if isinstance(found, (list, tuple)) else found


def config_for(model_class: Any, config: Mapping[str, Any]) -> Any:
    """The class's config from the checked object, not from the directory, where other files could be drawn in."""
    own = config
    kind = getattr(model_class.config_class, "model_type", None)
    parts = [config.get(model_class.config_class.base_config_key or ""), *config.values()]
    if config.get("model_type") != kind:  # the text model of a multimodal config
        own = next(
            (part for part in parts if isinstance(part, dict) and part.get("model_type") == kind), config
        )
    built = model_class.config_class.from_dict(_cleaned(own))
    built._attn_implementation = "eager"
    return built


def _cleaned(config: Mapping[str, Any]) -> dict[str, Any]:
    cleaned = copy.deepcopy(dict(config))
    for part in list(objects(cleaned)):
        for key in [key for key in part if _LEFT_OUT.fullmatch(key)]:
            part.pop(key)  # type: ignore[attr-defined]
    return cleaned


def file_keys(model: Any, names: Iterable[str]) -> dict[str, str]:
    """From the name of a parameter to the one tensor among `names` of the file that is loaded into it unchanged."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    with _asked(f"place the tensors of {type(model).__name__}"):
        transforms = get_model_conversion_mapping(model)
    renamings = [item for item in transforms if isinstance(item, WeightRenaming)]
    converters = [item for item in transforms if isinstance(item, WeightConverter)]
    state, prefix = model.state_dict(), model.base_model_prefix
    keys: dict[str, str] = {}
    for key in sorted(names):
        name, converted = rename_source_key(key, renamings, converters, prefix, state)
        if (
            name not in state and key in state
        ):  # as from_pretrained does: the renaming was not meant for this key
            name, converted = rename_source_key(key, [], [], prefix, state)
        if name in state and converted is None:
            keys.setdefault(name, key)
    return keys


def stored_name(model: Any, name: str) -> str:
    """Under which name save_pretrained writes the parameter `name`."""
    from transformers.core_model_loading import revert_weight_conversion

    (stored,) = revert_weight_conversion(model, {name: model.get_parameter(name)})
    return str(stored)


def _located(model: Any, keys: Mapping[str, str], files: ModelFiles) -> Located:
    kind = type(model).__name__
    table = _embedding(model, "get_input_embeddings")
    if table is None:
        raise UnsupportedModel(f"{kind} has no token table that is one matrix")
    table_key = _key_of(model, table, keys, files)
    if table_key is None:
        names = listing(_names(model, table))
        raise UnsupportedModel(
            f"no tensor in {files.path} is loaded unchanged as the token table of {kind} ({names})"
        )
    head = _embedding(model, "get_output_embeddings")
    if head is None:
        return Located(table_key, None, _no_head(model, files))
    head_key = _key_of(model, head, keys, files)
    if head_key is None:
        return Located(
            table_key,
            None,
            f"{kind} has an output head of its own, but the checkpoint holds no tensor for it",
        )
    return Located(table_key, head_key, f"told by the class {kind} of transformers")


def _no_head(model: Any, files: ModelFiles) -> str:
    kind = type(model).__name__
    if not files.config.get("architectures"):
        return (
            f"config.json names no architecture, and {kind}, the bare model of its type, has no output head"
        )
    return no_head(kind)


def _embedding(model: Any, getter: str) -> Any:
    """The module that holds the table or the head, or None."""
    try:
        module = getattr(model, getter)()
    except (NotImplementedError, AttributeError):  # how transformers says that there is none
        return None
    weight = getattr(module, "weight", None)
    return module if isinstance(weight, torch.nn.Parameter) and weight.ndim == 2 else None


def _key_of(model: Any, module: Any, keys: Mapping[str, str], files: ModelFiles) -> str | None:
    """The file's name of the weight of `module`: its own, or that of a parameter it is tied to."""
    for name in _names(model, module):
        if name in keys:
            _check_shape(keys[name], tuple(module.weight.shape), files)
            return keys[name]
    return None


def _names(model: Any, module: Any) -> list[str]:
    """The parameter's names: under the module itself first, then those it is tied to."""
    own = [f"{name}.weight" for name, other in model.named_modules(remove_duplicate=False) if other is module]
    shared = [
        name for name, weight in model.named_parameters(remove_duplicate=False) if weight is module.weight
    ]
    return list(dict.fromkeys([*own, *sorted(shared)]))


def _check_shape(key: str, expected: tuple[int, ...], files: ModelFiles) -> None:
    shape = files.entries[key].shape
    if shape != expected:
        raise InputError(
            f"config.json of {files.path} makes {key!r} {list(expected)}, the file has {list(shape)}: "
            f"they belong to different models; to measure the tensor anyway, open {files.path}#{key}"
        )
