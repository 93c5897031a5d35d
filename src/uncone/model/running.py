"""A checkpoint as a model that runs: transformers loads it, from its own directory, without code of the model's and without a network."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from uncone.errors import InputError, UnsupportedModel
from uncone.model import mapping
from uncone.model.bounds import bounded_construction, check_sizes
from uncone.model.files import ModelFiles, text_parts
from uncone.model.reasons import first_line
from uncone.rows.names import listing

ADAPTER = "adapter_config.json"
_SLACK = 2**20  # numbers of small parts that a checkpoint may lack


def load_model(files: ModelFiles, *, dtype: torch.dtype | None = None) -> Any:
    """The model of `files` on the CPU, in evaluation mode, with eager attention.

    Args:
        files: an opened directory.
        dtype: of its parameters; None for what its config says, or how they are stored.

    Raises:
        UnsupportedModel: transformers is missing or does not know the class, or cannot load it; quantised weights; an adapter beside them.
        InputError: the checkpoint lacks tensors, which would then be random.
    """
    refuse_adapter(files.path)
    refuse_quantised(files)
    check_sizes(files.config)
    try:
        import transformers.conversion_mapping  # noqa: F401 - version 4 has none
    except ImportError as error:
        raise UnsupportedModel(f"running a model needs transformers 5: {mapping.INSTALL}") from error
    with mapping.quiet(), _no_bars():
        model_class = mapping.model_class_of(files)
        _refuse_larger_than_its_files(files)
        try:
            with bounded_construction():
                config = mapping.config_for(model_class, files.config)
                model, info = model_class.from_pretrained(
                    files.path, config=config, dtype="auto" if dtype is None else dtype, local_files_only=True, weights_only=True,
                    trust_remote_code=False, attn_implementation="eager", output_loading_info=True,
                )  # fmt: skip
        except InputError:
            raise
        except Exception as error:  # whatever a config and tensors make a constructor raise
            raise UnsupportedModel(
                f"transformers cannot load {model_class.__name__} from {files.path} ({first_line(error)})"
            ) from error
    lacking = sorted(
        {*info.get("missing_keys", ()), *(str(key[0]) for key in info.get("mismatched_keys", ()))}
    )
    if lacking:
        raise InputError(
            f"expected all weights of {model_class.__name__} in {files.path}, got none that fit for {listing(lacking)}: they would be random; "
            "download the rest, or name the architecture that was saved in config.json"
        )
    return model.eval()


def _refuse_larger_than_its_files(files: ModelFiles) -> None:
    """Raise before anything is allocated where config.json describes a model that the files cannot fill."""
    described = sum(parameter.numel() for parameter in mapping.built(files).parameters())
    stored = sum(math.prod(entry.shape) for entry in files.entries.values())
    if described > 2 * stored + _SLACK:
        raise InputError(
            f"expected weights for the model that config.json of {files.path} describes, {described} numbers, got {stored}: they belong to different "
            "models, or a part is missing; download it again"
        )


@contextmanager
def _no_bars() -> Iterator[None]:
    """No progress bars of transformers."""
    from transformers.utils import logging as bars

    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def refuse_adapter(path: Path) -> None:
    """Raises UnsupportedModel where the directory holds an adapter, alone or beside weights."""
    if (path / ADAPTER).exists():
        raise UnsupportedModel(
            f"expected a whole model, got {path} with {ADAPTER}: merge the adapter first (model.merge_and_unload() of PEFT), save, "
            "and give that directory"
        )


def refuse_quantised(files: ModelFiles) -> None:
    """Raises UnsupportedModel where config.json says that the weights are quantised."""
    for part in text_parts(files.config):
        for key in ("quantization_config", "compression_config"):
            if part.get(key):
                raise UnsupportedModel(
                    f"expected weights in floating point, got {files.path} whose config.json has a {key}: give the model that was quantised"
                )
