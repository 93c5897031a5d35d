"""tests/conftest.py lets beartype check every annotation of the package, those of nested functions at first."""

import os

import pytest
from beartype.roar import BeartypeCallHintViolation

from uncone.arguments import whole_number
from uncone.lazy import parts


@pytest.mark.skipif(
    bool({"OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "ATEN_CPU_CAPABILITY"} & os.environ.keys()),
    reason="runs as on another processor check no types",
)
def test_a_wrong_type_is_refused() -> None:
    with pytest.raises(BeartypeCallHintViolation):
        whole_number(3, 4)  # type: ignore[arg-type]
    with pytest.raises(BeartypeCallHintViolation):
        parts(7)  # type: ignore[arg-type]
