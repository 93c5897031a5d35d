"""Directories that look like checkpoints, made of a config and tensors."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

Plant = Callable[..., Path]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """plant(config, {name: shape or tensor}) writes config.json and model.safetensors and returns the directory."""

    def write(config, tensors, *, name: str = "model") -> Path:
        directory = tmp_path / name
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(config))
        rng = np.random.default_rng(0)
        values = {
            key: np.asarray(value) if hasattr(value, "shape") else rng.standard_normal(value, dtype=np.float32)
            for key, value in tensors.items()
        }
        save_file(values, directory / "model.safetensors")
        return directory

    return write


@pytest.fixture
def plant_shards(tmp_path: Path) -> Plant:
    """plant_shards({file: {name: shape}}, weight_map=None) writes a sharded checkpoint and returns the directory."""

    def write(shards, weight_map=None, config=None) -> Path:
        directory = tmp_path / "sharded"
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(config or {"vocab_size": 8}))
        for file, tensors in shards.items():
            save_file({key: np.ones(shape, np.float32) for key, shape in tensors.items()}, directory / file)
        own = {key: file for file, tensors in shards.items() for key in tensors}
        placed = own if weight_map is None else weight_map
        (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
        return directory

    return write
