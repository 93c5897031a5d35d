"""Repairs of vectors where torch is not installed, with the numbers that they have where it is."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from uncone.transforms import REPAIRS, load

_PROGRAM = """
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

class NoTorch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
import numpy, uncone
folder = Path(sys.argv[1])
x = numpy.load(folder / "x.npy")
for name in sys.argv[2:]:
    uncone.repair(folder / "x.npy", folder / f"{name}.npy", method=name, save=folder / f"{name}.safetensors")
    numpy.save(folder / f"{name}-array.npy", uncone.transforms.load(folder / f"{name}.safetensors").transform(x))
for more in ({"queries": folder / "x.npy", "qrels": {0: {0: 1}}}, {"method": "auto", "queries": x}):
    try:
        uncone.repair(folder / "x.npy", folder / "none.npy", **more)
    except uncone.InputError as error:
        print(error)
assert "torch" not in sys.modules
"""


def test_repairs_of_vectors_need_no_torch(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the extra [cluster] is not installed")
    x = np.random.default_rng(0).normal(1, np.linspace(3, 1, 20), (500, 20)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    done = subprocess.run([sys.executable, "-c", _PROGRAM, tmp_path, *REPAIRS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pip install 'uncone[torch]'") == 2
    for name in REPAIRS:
        found = load(tmp_path / f"{name}.safetensors").transform(torch.from_numpy(x))
        assert isinstance(found, torch.Tensor)
        for file in (f"{name}.npy", f"{name}-array.npy"):
            np.testing.assert_allclose(np.load(tmp_path / file), found.numpy(), rtol=1e-6, atol=1e-6)
