"""The class of transformers that config.json names: built without its weights, or loaded to run.

With ties.py the only file that knows internal interfaces of transformers (version 5).
"""

import copy
import itertools
import math
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from uncone.errors import InputError, UnsupportedModel, first_line
from uncone.model.files import ModelFiles, text_parts
from uncone.model.hugging_face import asked, from_pretrained, need_transformers
from uncone.rows.names import listing

ADAPTER = "adapter_config.json"
# Settings that choose a kernel to download, a quantiser or pretrained parts; none of them moves the table or the head.
_LEFT_OUT = re.compile(
    r"_?(attn|experts)_implementation\w*|(quantization|compression)_config|auto_map|use_pretrained_backbone"
)
_SLACK = 2**20  # numbers of small parts that a checkpoint may lack
# The most of what a setting's name counts that a constructor makes in a few seconds: 1,024 layers take about two.
_MOST = (
    (r"(layer|block|depth|stage)s?$", 1024),
    (r"(expert|head|group|codebook)s?$", 4096),
    (r"^num_labels$", 2**17),
    (r"", 2**31),
)
_MOST_PARTS = 2**18
"""Modules and parameters: twenty times those of models with 126 layers, built in about ten seconds."""


def build(files: ModelFiles) -> Any:
    """The model on the meta device: its modules and names, no weights.

    Raises:
        UnsupportedModel: transformers is missing or too old, the class is unknown to it or custom code, or it cannot be
            built from this config.
        InputError: config.json is absurd.
    """
    check_sizes(files.config)
    need_transformers("opening a model by its class")
    model_class = _class_of(files)
    with (
        asked(f"build {model_class.__name__} from its config.json"),
        torch.device("meta"),
        bounded_construction(),
    ):
        return model_class(_config_for(model_class, files.config))


def load_model(files: ModelFiles, *, dtype: torch.dtype | None = None) -> Any:
    """The model of `files` on the CPU, in evaluation mode, with eager attention.

    Args:
        files: an opened directory.
        dtype: of its parameters; None for what its config says, or how they are stored.

    Raises:
        UnsupportedModel: transformers is missing or does not know the class, or cannot load it; quantised weights; an adapter
            beside them.
        InputError: the checkpoint lacks tensors, which would then be random.
    """
    refuse_adapter(files.path)
    refuse_quantised(files)
    _refuse_larger_than_its_files(files)
    model_class = _class_of(files)
    with asked(f"load {model_class.__name__} from {files.path}"), bounded_construction():
        model, info = from_pretrained(
            model_class, files.path, config=_config_for(model_class, files.config), dtype="auto" if dtype is None else dtype,
            weights_only=True, attn_implementation="eager", output_loading_info=True,
        )  # fmt: skip
    mismatched = (str(key[0]) for key in info.get("mismatched_keys", ()))
    lacking = sorted({*info.get("missing_keys", ()), *mismatched})
    if lacking:
        raise InputError(
            f"expected all weights of {model_class.__name__} in {files.path}, got none that fit for {listing(lacking)}: "
            "they would be random; download the rest, or name the architecture that was saved in config.json"
        )
    return model.eval()


def refuse_adapter(path: Path) -> None:
    """Raises UnsupportedModel where the directory holds an adapter, alone or beside weights."""
    if (path / ADAPTER).exists():
        raise UnsupportedModel(
            f"expected a whole model, got {path} with {ADAPTER}: merge the adapter first "
            "(model.merge_and_unload() of PEFT), save, and give that directory"
        )


def refuse_quantised(files: ModelFiles) -> None:
    """Raises UnsupportedModel where config.json says that the weights are quantised."""
    for part in text_parts(files.config):
        for key in ("quantization_config", "compression_config"):
            if part.get(key):
                raise UnsupportedModel(
                    f"expected weights in floating point, got {files.path} whose config.json has a {key}: "
                    "give the model that was quantised"
                )


def _refuse_larger_than_its_files(files: ModelFiles) -> None:
    """Raise before anything is allocated where config.json describes a model that the files cannot fill."""
    described = sum(parameter.numel() for parameter in build(files).parameters())
    stored = sum(math.prod(entry.shape) for entry in files.entries.values())
    if described > 2 * stored + _SLACK:
        raise InputError(
            f"expected weights for the model that config.json of {files.path} describes, {described} numbers, got {stored}: "
            "they belong to different models, or a part is missing; download it again"
        )


def _class_of(files: ModelFiles) -> Any:
    """The class that config.json names; code that comes with a model is never run."""
    import transformers

    names = files.config.get("architectures") or []
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    if name is None:
        return _base_class(files)
    with asked(f"load the class {name}"):  # a lazy import that misses a package of its own
        model_class = getattr(transformers, name, None) if name.isidentifier() else None
        is_model = isinstance(model_class, type) and issubclass(model_class, transformers.PreTrainedModel)
    if not is_model or getattr(model_class, "config_class", None) is None:
        raise UnsupportedModel(
            f"the class {name!r} in config.json is not part of transformers {transformers.__version__}, "
            "and code that comes with a model is never run: a newer transformers may know it"
        )
    return model_class


def _base_class(files: ModelFiles) -> Any:
    """Without `architectures`: the bare model of the model type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    kind = files.config.get("model_type")
    try:
        model_class = MODEL_MAPPING[CONFIG_MAPPING[kind]]
    except Exception as error:  # unknown kinds are KeyErrors, of a kind that misses a package anything
        raise UnsupportedModel(
            f"config.json names no architecture and the model type {kind!r}, which transformers does not build "
            f"({first_line(error)})"
        ) from error
    return model_class[0] if isinstance(model_class, list | tuple) else model_class


def _config_for(model_class: Any, config: Mapping[str, Any]) -> Any:
    """The class's config from the checked object: the directory could draw in other files."""
    own, config_class = config, model_class.config_class
    kind = getattr(config_class, "model_type", None)
    if config.get("model_type") != kind:  # the text model of a multimodal config
        parts = [config.get(config_class.base_config_key or ""), *config.values()]
        own = next(
            (part for part in parts if isinstance(part, dict) and part.get("model_type") == kind), config
        )
    cleaned = copy.deepcopy(dict(own))
    for part in list(objects(cleaned)):
        for key in [key for key in part if _LEFT_OUT.fullmatch(key)]:
            part.pop(key)  # type: ignore[attr-defined]
    made = config_class.from_dict(cleaned)
    made._attn_implementation = "eager"
    return made


def check_sizes(config: Mapping[str, Any]) -> None:
    """Refuse counts that no model has, and so no constructor ends with.

    Raises:
        InputError: an absurd number of layers, experts, labels or the like, or an integer beyond 2**31.
    """
    for part in objects(config):
        for key, value in part.items():
            most = next(most for pattern, most in _MOST if re.search(pattern, key))
            if type(value) is int and abs(value) > most:
                short = str(value) if abs(value) < 10**20 else f"a number of {value.bit_length()} bits"
                raise _absurd(f"{key} of at most {most}", short)


@contextmanager
def bounded_construction() -> Iterator[None]:
    """Stop a constructor of this thread that makes modules without end, whatever settings made it do so.

    Raises:
        InputError: more than 2**18 modules and parameters.
    """
    thread, count = threading.get_ident(), itertools.count(1)

    def stop(*_: Any) -> None:
        if threading.get_ident() == thread and next(count) > _MOST_PARTS:
            raise _absurd(f"a model of at most {_MOST_PARTS} modules and parameters", "more")

    hooks = (
        torch_module.register_module_module_registration_hook(stop),
        torch_module.register_module_parameter_registration_hook(stop),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in a JSON value, without recursion."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _absurd(expected: str, came: str) -> InputError:
    return InputError(
        f"expected {expected} in config.json, got {came}: the config is not to be trusted, copy it again"
    )
