"""The table of docs/repair.md is what its code prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import uncone

PAGE = Path(__file__).parents[2] / "docs" / "repair.md"


def _numbers(lines: list[str]) -> dict[str, list[float]]:
    found = [line.strip("| ").split(" | ") for line in lines]
    return {name: [float(value) for value in values] for name, *values in found}


@pytest.mark.slow
def test_the_table_is_what_the_code_prints(minilm: Path) -> None:
    pytest.importorskip("sklearn", reason="the extra [cluster] is not installed")
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    code = next(code for code in blocks if "REPAIRS" in code)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, str(PAGE), "exec"), {"uncone": uncone})
    table = text[text.index(code) :].partition("| repair | mean cosine |")[2].splitlines()[2:]
    shown = _numbers([line for line in table if line.startswith("| `")][: len(uncone.transforms.REPAIRS) + 1])
    real = _numbers(printed.getvalue().splitlines())
    assert list(shown) == list(real)
    for name, values in real.items():
        assert shown[name] == pytest.approx(values, abs=2e-3, rel=5e-3), name
