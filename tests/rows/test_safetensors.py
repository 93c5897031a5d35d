"""Files of safetensors as uncone writes and reads them whole, against the library."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from tests.matrices import equal
from uncone.errors import InputError
from uncone.rows.bytes import LocalFile
from uncone.rows.safetensors import CODES, read_header, read_tensors, to_bytes

DTYPES = [getattr(torch, name) for name in CODES if name != "bfloat16"]
SHAPES = st.lists(st.integers(0, 4), max_size=3)
NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__")
TENSORS = st.dictionaries(NAMES, st.tuples(SHAPES, st.sampled_from(DTYPES)), max_size=5)


@given(TENSORS, st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=5))
def test_the_library_reads_what_is_written(
    tmp_path_factory: pytest.TempPathFactory, asked: dict[str, tuple[list[int], torch.dtype]], said: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("x") / "x.safetensors"
    tensors = {name: (10 * torch.randn(shape)).to(dtype) for name, (shape, dtype) in asked.items()}
    said |= {"format": "x/1"}
    path.write_bytes(to_bytes({name: tensor.numpy() for name, tensor in tensors.items()}, said))
    with safe_open(path, "pt") as file:
        assert (file.metadata() or {}) == said
        assert set(file.keys()) == set(tensors)
        for name, tensor in tensors.items():
            found = file.get_tensor(name)
            assert found.dtype == tensor.dtype
            assert equal(found, tensor)
    back, metadata = read_tensors(path, format=said["format"], what="tensors", how="write them")
    assert metadata == said == read_header(LocalFile(path))[1]
    assert all(equal(back[name], tensor) for name, tensor in tensors.items())


def test_equal_tensors_in_another_order_and_layout_are_equal_bytes() -> None:
    one = {"b": np.arange(6.0).reshape(2, 3).T, "a": np.ones(2, np.bool_), "c": np.array(3)}
    other = {"c": np.array(3), "a": np.ones(2, np.bool_), "b": np.ascontiguousarray(one["b"])}
    assert to_bytes(one, {"x": "1", "y": "2"}) == to_bytes(other, {"x": "1", "y": "2"})


def test_a_dtype_that_torch_lacks_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    content = b'{"__metadata__":{"format":"x/1"},"codes":{"dtype":"F8_E5M2","shape":[4],"data_offsets":[0,4]}}'
    path.write_bytes(len(content).to_bytes(8, "little") + content + bytes(4))
    with pytest.raises(InputError, match=r"expected tensors, got .* with tensor 'codes' of F8_E5M2: write them"):
        read_tensors(path, format="x/1", what="tensors", how="write them")
