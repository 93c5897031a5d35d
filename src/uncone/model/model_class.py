"""The transformers class that config.json names, built without weights or loaded to run, and its tensors.

This is the only file that uses internal interfaces of transformers (version 5). It translates the keys of files as
from_pretrained does: GPT-NeoX writes its `lm_head` as `embed_out`.
"""

import copy
import itertools
import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from uncone.errors import InputError, UnsupportedModel, first_line
from uncone.model.files import ADAPTER, ModelFiles, text_parts
from uncone.model.hugging_face import asked, from_pretrained, need
from uncone.rows.names import listing

# Settings of kernels, quantisers or pretrained parts; none moves the table or head.
_LEFT_OUT = re.compile(
    r"_?(attn|experts)_implementation\w*|(quantization|compression)_config|auto_map|use_pretrained_backbone"
)
# What a constructor builds in a few seconds: 1,024 layers take about two.
_MOST = (
    (r"(layer|block|depth|stage)s?$", 1024),
    (r"(expert|head|group|codebook)s?$", 4096),
    (r"^num_labels$", 2**17),
    (r"", 2**31),
)
_MOST_PARTS = 2**18  # twenty times the parts of a model with 126 layers, built in ten seconds


def build(files: ModelFiles) -> Any:
    check_sizes(files.config)
    need("opening a model by its class")
    model_class = _class_of(files)
    what = f"build {model_class.__name__} from {files.where}/config.json"
    with asked(what), torch.device("meta"), bounded_construction():
        return model_class(_config_for(model_class, files.config))


def load_model(files: ModelFiles, *, dtype: torch.dtype | None = None, fast: bool = False) -> Any:
    """Load the model on the CPU, for evaluation. `dtype` None uses the config's dtype, or the stored one.

    `fast` uses the attention of torch if the class supports it. It rounds differently.
    """
    refuse_adapter(files.path)
    refuse_quantised(files)
    # config.json may describe a model that the files cannot fill.
    described = sum(parameter.numel() for parameter in build(files).parameters())
    stored = sum(math.prod(entry.shape) for entry in files.entries.values())
    if described > 2 * stored + 2**20:  # small parts may be missing
        raise InputError(
            f"expected weights for the model that config.json of {files.where} describes ({described} numbers), "
            f"got {stored}: they belong to different models, or a part is missing; download it again"
        )
    model_class = _class_of(files)
    attention = "sdpa" if fast and getattr(model_class, "_supports_sdpa", False) else "eager"
    with asked(f"load {model_class.__name__} from {files.path}"), bounded_construction():
        model, info = from_pretrained(
            model_class,
            files.path,
            config=_config_for(model_class, files.config, attention),
            weights_only=True,
            dtype="auto" if dtype is None else dtype,
            attn_implementation=attention,
            output_loading_info=True,
        )
    lacking = sorted({*info.get("missing_keys", ()), *(str(key[0]) for key in info.get("mismatched_keys", ()))})
    if lacking:
        raise InputError(
            f"expected all weights of {model_class.__name__} in {files.where}, got none that fit "
            f"for {listing(lacking)}: they would be random; download the rest, or name the saved class in config.json"
        )
    return model.eval()


def refuse_adapter(path: Path) -> None:
    if (path / ADAPTER).exists():
        way_out = "merge the adapter first (PEFT's model.merge_and_unload()), save, and give that directory"
        raise UnsupportedModel(f"expected a whole model, got {path} with {ADAPTER}: {way_out}")


def refuse_quantised(files: ModelFiles) -> None:
    for part in text_parts(files.config):
        for key in ("quantization_config", "compression_config"):
            if part.get(key):
                got = f"{files.path} whose config.json has a {key}: give the model before quantisation"
                raise UnsupportedModel(f"expected weights in floating point, got {got}")


def _class_of(files: ModelFiles) -> Any:
    """The class that config.json names, or the bare model of its type. Code of a model is never run."""
    import transformers

    names = files.config.get("architectures") or []
    if not (isinstance(names, list) and names and isinstance(names[0], str)):
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
        from transformers.models.auto.modeling_auto import MODEL_MAPPING

        kind = files.config.get("model_type")
        try:
            model_class = MODEL_MAPPING[CONFIG_MAPPING[kind]]
        except Exception as error:  # KeyError, or whatever a missing package raises
            why = f"the model type {kind!r}, which transformers does not build ({first_line(error)})"
            raise UnsupportedModel(f"config.json names no architecture and {why}") from error
        return model_class[0] if isinstance(model_class, list | tuple) else model_class
    name = names[0]
    with asked(f"load the class {name}"):  # its lazy import may miss a package
        model_class = getattr(transformers, name, None) if name.isidentifier() else None
        is_model = isinstance(model_class, type) and issubclass(model_class, transformers.PreTrainedModel)
    if not is_model or getattr(model_class, "config_class", None) is None:
        raise UnsupportedModel(
            f"the class {name!r} in config.json is not part of transformers {transformers.__version__}, "
            "and uncone never runs code that comes with a model: a newer transformers may know it"
        )
    return model_class


def _config_for(model_class: Any, config: Mapping[str, Any], attention: str = "eager") -> Any:
    """The config from the checked object, because the directory could draw in other files."""
    own, config_class = config, model_class.config_class
    kind = getattr(config_class, "model_type", None)
    if config.get("model_type") != kind:  # the text model of a multimodal config
        parts = [config.get(config_class.base_config_key or ""), *config.values()]
        own = next((part for part in parts if isinstance(part, dict) and part.get("model_type") == kind), config)
    cleaned = copy.deepcopy(dict(own))
    for part in list(objects(cleaned)):
        for key in [key for key in part if _LEFT_OUT.fullmatch(key)]:
            part.pop(key)  # type: ignore[attr-defined]
    made = config_class.from_dict(cleaned)
    made._attn_implementation = attention
    return made


def check_sizes(config: Mapping[str, Any]) -> None:
    """Refuse counts of layers, experts, labels or the like with which no constructor would finish."""
    for part in objects(config):
        for key, value in part.items():
            most = next(most for pattern, most in _MOST if re.search(pattern, key))
            if type(value) is int and abs(value) > most:
                short = str(value) if abs(value) < 10**20 else f"a number of {value.bit_length()} bits"
                raise _absurd(f"{key} of at most {most}", short)


@contextmanager
def bounded_construction() -> Iterator[None]:
    """Stop a constructor of this thread that makes modules endlessly."""
    thread, count = threading.get_ident(), itertools.count(1)

    def stop(*_: Any) -> None:
        if threading.get_ident() == thread and next(count) > _MOST_PARTS:
            raise _absurd(f"a model of at most {_MOST_PARTS} modules and parameters", "more")

    with (
        torch_module.register_module_module_registration_hook(stop),
        torch_module.register_module_parameter_registration_hook(stop),
    ):
        yield


def objects(value: Any) -> Iterator[Mapping[str, Any]]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _absurd(expected: str, came: str) -> InputError:
    return InputError(f"expected {expected} in config.json, got {came}: do not trust it, or copy it again")


def file_keys(model: Any, names: Iterable[str]) -> dict[str, str]:
    """Map each parameter's name to the tensor among `names` that is loaded into it unchanged."""
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
    return file_keys(build(files), files.tensors)


def shared_names(files: ModelFiles) -> frozenset[str]:
    """The tensors of the head and of parameters tied to it, since torch.save writes several."""
    model = build(files)
    keys, head = file_keys(model, files.tensors), model.get_output_embeddings().weight
    return frozenset(keys[name] for name in names_of(model, head) if name in keys)


def names_of(model: Any, parameter: Any) -> list[str]:
    return [name for name, other in model.named_parameters(remove_duplicate=False) if other is parameter]


def parted(files: ModelFiles) -> tuple[dict[str, str], str]:
    """Map each tensor that is missing once nothing is tied to the file's tensor to copy. Also return the head's name.

    A class ties more than the head: BERT ties the biases of its head, T5 the embeddings of its encoder and decoder.
    """
    from transformers.core_model_loading import revert_weight_conversion

    tied, apart = build(files), build(replace(files, config=without_ties(files.config)))
    head = apart.get_output_embeddings().weight
    if len(names_of(apart, head)) > 1:
        got = f"{type(tied).__name__}, which ties it whatever config.json says"
        raise UnsupportedModel(f"expected a class whose head can be untied, got {got}")
    keys, tied_keys = file_keys(apart, files.tensors), file_keys(tied, files.tensors)
    groups: dict[int, list[str]] = {}
    for name, parameter in tied.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    # From each parameter to its tensor, or to the tensor of a parameter tied to it.
    sources = dict[str, str]()
    for names in groups.values():
        if own := [tied_keys[name] for name in names if name in tied_keys]:
            sources |= dict.fromkeys(names, own[0])
    stored, added = dict(keys), {}
    with asked(f"name the tensors of {type(tied).__name__}"):
        for name, parameter in apart.named_parameters():
            if name not in keys and name in sources:
                ((stored[name], _),) = revert_weight_conversion(apart, {name: parameter}).items()
                added[stored[name]] = sources[name]
    return added, stored[names_of(apart, head)[0]]


def without_ties(config: Mapping[str, Any]) -> dict[str, Any]:
    inner = {
        key: {**value, "tie_word_embeddings": False}
        for key, value in config.items()
        if isinstance(value, dict) and (key == "text_config" or "tie_word_embeddings" in value)
    }
    return {**config, **inner, "tie_word_embeddings": False}
