"""Embeddings of Sentence Transformers models, and an affine repair before their Normalize, as one Dense layer that any
program loads without uncone. A model's own code is never run."""

import dataclasses
import itertools
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError
from uncone.model.directory import copied_files
from uncone.model.files import read_json
from uncone.model.hugging_face import need
from uncone.model.sentence_transformers import LIBRARY, MODULES, read_modules
from uncone.roles import Path_, Ticks
from uncone.rows.safetensors import to_bytes
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Transformation, affine_of
from uncone.transforms.normalized import Normalized
from uncone.version import __version__

Tensor = torch.Tensor
Repair = Transformation | Affine | Normalized
_NAME = "repair"
_SENTENCE = "sentence_embedding"
_NORMALIZE = "Normalize"
_AT_ONCE = 1024  # sentences
WHERE = "a Sentence Transformers model"


def insert(model: Any, transformation: Repair) -> Any:
    """Insert an affine repair into a loaded `SentenceTransformer`, in place: before its last Normalize, or at its end.
    The repair must be fitted on vectors of `without_normalize`. Returns the Dense module, with the model's dtype and
    device."""
    st = need(*LIBRARY)
    affine = affine_of(transformation, WHERE)
    named = list(model._modules.items())
    at = _insertion([type(module).__name__ for module in model])
    _check_width(affine.d, _width([module for _, module in named[:at]]))
    matrix, constant = affine.as_linear()
    parameter = next(model.parameters(), torch.empty(0))
    weight, bias = (torch.tensor(x).to(parameter) for x in (matrix.T, constant))
    try:  # moved in version 6; the old place warns
        from sentence_transformers.base.modules.dense import Dense
    except ImportError:
        Dense = st.models.Dense
    dense = Dense(affine.d, affine.k, True, torch.nn.Identity(), init_weight=weight, init_bias=bias)
    dense.to(parameter.device).eval()
    name = _free(_NAME, [name for name, _ in named])
    model._modules = OrderedDict([*named[:at], (name, dense), *named[at:]])
    return dense


def insert_into_directory(
    directory: Path_, transformation: Repair, out: Path_, *, check: Callable[[Path], None] | None = None
) -> Path:
    """Write a copy of a saved model with the repair where `insert` puts it: one more entry in modules.json and one more
    folder. `out` appears whole or not at all. `check` is called with the finished copy before the copy gets its name,
    and an error leaves nothing behind."""
    source, target = Path(directory), Path(out)
    affine = affine_of(transformation, WHERE)
    modules = read_modules(source)
    at = _insertion([_kind(source, module) for module in modules])
    _check_width(affine.d, _configured_width(source, modules[at - 1]) if at else None)
    with copied_files(source, target) as (folder, _):
        place = _free(f"{at}_Dense", os.listdir(folder))
        _write_dense(folder / place, affine)
        # names stay, as options refer to them; numbers are given again
        ours = {"name": _free(_NAME, [module["name"] for module in modules]), "path": place}
        ours["type"] = "sentence_transformers.models.Dense"  # the name that versions 2 to 6 know
        all_modules = [{**module, "idx": i} for i, module in enumerate((*modules[:at], ours, *modules[at:]))]
        (folder / MODULES).write_text(json.dumps(all_modules, indent=2), encoding="utf-8")
        if check is not None:
            check(folder)
    return target


def _kind(directory: Path, module: dict[str, Any]) -> str:
    """The class of a module, without its package; "" for a Normalize of tokens, which does not normalise sentences."""
    kind: str = module["type"].rpartition(".")[2]
    config = _config(directory, module) if module["path"] else {}
    return "" if kind == _NORMALIZE and config.get("module_input_name", _SENTENCE) != _SENTENCE else kind


def _config(directory: Path, module: dict[str, Any]) -> dict[str, Any]:
    path = directory / module["path"] / "config.json"
    return dict(read_json(path, dict)) if path.is_file() else {}


def _configured_width(directory: Path, module: dict[str, Any]) -> int | None:
    """The width of the module's output; None unless its configuration shows it in a known way."""
    kind, config = module["type"].rpartition(".")[2], _config(directory, module)
    if kind == "Dense":
        width, count = config.get("out_features"), 1
    elif kind == "Pooling":
        width = config.get("embedding_dimension", config.get("word_embedding_dimension"))
        flags = [name for name, on in config.items() if name.startswith("pooling_mode_") and on is True]
        modes = config.get("pooling_mode", flags)
        count = 1 if isinstance(modes, str) else len(modes) if isinstance(modes, list) else 0
    else:
        return None
    return width * count if isinstance(width, int) and count else None


def _width(modules: Sequence[Any]) -> int | None:
    names = ("get_embedding_dimension", "get_sentence_embedding_dimension")
    widths = (getattr(module, name, None) for module in reversed(modules) for name in names)
    return next((int(width_of()) for width_of in widths if width_of is not None), None)


def _check_width(given: int, d: int | None) -> None:
    if d not in (None, given):
        rows = f"rows of {d} features, as the model gives them before its Normalize"
        raise InputError(f"expected a transformation of {rows}, got one of {given}: fit it on such rows")


def _write_dense(folder: Path, affine: Affine) -> None:
    folder.mkdir()
    identity = "torch.nn.modules.linear.Identity"  # the default would be Tanh
    config = {"in_features": affine.d, "out_features": affine.k, "bias": True, "activation_function": identity}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    matrix, bias = affine.as_linear()
    header = {"format": "pt", "uncone": __version__}
    if affine.fitted is not None:
        header["fitted"] = json.dumps(dataclasses.asdict(affine.fitted))
    tensors = {"linear.weight": matrix.T.astype(np.float32), "linear.bias": bias.astype(np.float32)}
    (folder / "model.safetensors").write_bytes(to_bytes(tensors, header))


def _free(name: str, taken: Sequence[str]) -> str:
    """The name, with a number after it where it is in use."""
    numbered = (f"{name}_{i}" for i in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if free not in taken)


def without_normalize(model: Any) -> Any:
    """The model up to its last Normalize. A repair is fitted on the vectors of this model."""
    modules = list(model)[: _insertion([type(module).__name__ for module in model])]
    named = {"prompts": model.prompts, "default_prompt_name": model.default_prompt_name}
    short = need(*LIBRARY).SentenceTransformer(modules=modules, local_files_only=True, **named)
    return short.to(model.device).eval()


def embed(model: Any, sentences: Sequence[str], *, progress: Ticks = None) -> Tensor:
    parts = []
    for start in range(0, len(sentences), _AT_ONCE):
        some = list(sentences[start : start + _AT_ONCE])
        vectors = model.encode(some, batch_size=64, convert_to_tensor=True, show_progress_bar=False)
        parts.append(vectors.detach().float().cpu())
        if progress is not None:
            progress(start + len(some))
    return torch.cat(parts)


def _insertion(kinds: Sequence[str]) -> int:
    """The place of a repair: before the Normalize modules at the end, if any."""
    return len(list(itertools.dropwhile(lambda kind: kind == _NORMALIZE, reversed(kinds))))
