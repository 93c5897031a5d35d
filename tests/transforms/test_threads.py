"""The same bytes on any number of threads: of a diagnosis of every kind of file, of what repairs fit and write."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from uncone.transforms import REPAIRS

from ..matrices import gaussian

_PROGRAM = """
import sys
from pathlib import Path
from uncone import diagnose
from uncone.transforms import REPAIRS, repair_named, repair_rows
from uncone.model.open import open_rows

folder, out = Path(sys.argv[1]), Path(sys.argv[2])
for spec in ("large.npy", "wide.npz", "wide.safetensors", "wide.parquet"):
    (out / f"{spec}.json").write_text(diagnose(folder / spec, neighbours=spec == "wide.npz").to_json())
for name in REPAIRS:
    rows = open_rows(folder / "wide.npz")
    made = repair_named(name, d=rows.shape[1]).fit(rows)
    repair_rows(rows, made, out / f"{name}.npy")
    made.save(out / f"{name}.safetensors")
"""


@pytest.mark.slow
def test_the_number_of_threads_changes_no_byte_of_a_diagnosis_or_a_repair(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the extra [cluster] is not installed")
    pa = pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
    import pyarrow.parquet as pq

    wide = (gaussian(3000, 200) * torch.linspace(2, 0.5, 200) + gaussian(1, 200, seed=1)).numpy()
    np.save(tmp_path / "large.npy", (gaussian(40_000, 24) * torch.linspace(2, 0.5, 24) + 0.3).numpy())
    np.savez(tmp_path / "wide.npz", wide)
    save_file({"x": wide}, tmp_path / "wide.safetensors")
    column = pa.FixedSizeListArray.from_arrays(pa.array(wide.reshape(-1)), 200)
    pq.write_table(pa.table({"x": column}), tmp_path / "wide.parquet")
    found = []
    for threads in ("1", "2", "4"):
        out = tmp_path / threads
        out.mkdir()
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(tmp_path), str(out)],
            env={**os.environ, "OMP_NUM_THREADS": threads},
            check=True,
        )
        found.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
    assert len(found[0]) == 4 + 2 * len(REPAIRS)
    assert json.loads(found[0]["wide.npz.json"])["subjects"]
    for other in found[1:]:
        assert [name for name in found[0] if other[name] != found[0][name]] == []
