"""What a monitor may cost: passes over matrices, waits for a device, and no run."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import uncone
from uncone import Monitor
from uncone.training.monitor import rows

from ..models import V, batch, narrow_gpt2
from .test_monitor import Plain, lines, train

Tensor = torch.Tensor


class Reads(TorchDispatchMode):
    """Numbers of a matrix that operators read; those that make a view of it read none."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self._place, self.numbers = matrix.untyped_storage().data_ptr(), 0

    def _is_of(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.untyped_storage().data_ptr() == self._place

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **kwargs or {})
        if not any(map(self._is_of, tree_leaves(found))):
            self.numbers += sum(x.numel() for x in tree_leaves((args, kwargs)) if self._is_of(x))
        return found


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("block", [7, 1000])
def test_a_record_reads_each_number_of_a_matrix_twice(monkeypatch: pytest.MonkeyPatch, block: int, tied: bool) -> None:
    """In bfloat16, of which each block is made wide, with one operator."""
    monkeypatch.setattr(rows, "_BLOCK", 8 * block)
    model = Plain().bfloat16()
    if tied:
        model.out.weight = model.table.weight
    ids = batch()["input_ids"]
    with Monitor(None, model, 1, table=model.table, head=model.out) as monitor:
        for step in range(12):
            torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
            with Reads(model.table.weight) as table, Reads(model.out.weight) as head:
                found = monitor.measure(step)
            assert "gradient.adam" in found
            assert ("head.effective_rank" in found) is (step % 10 == 0)
            assert head.numbers == 2 * V * 8
            assert table.numbers == 2 * V * 8


class Counting(TorchDispatchMode):
    """Operators that wait for a device."""

    WAITS = ("_local_scalar_dense", "nonzero", "bincount", "unique", "is_nonzero", "equal", "masked_select")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::")
        if name.split(".")[0] in self.WAITS or (name.startswith("index.") and args[1][0].dtype == torch.bool):
            self.found.append(name)
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("attach", [False, True])
def test_a_device_is_waited_for_by_a_record_alone(attach: bool) -> None:
    def waits(monitor: bool) -> list[list[str]]:
        model = narrow_gpt2()
        handle = uncone.attach(model) if attach else None
        watching = Monitor(None, model, 3) if monitor else None
        found = []
        for step in range(5):
            with Counting() as counting:
                train(model, watching, range(step, step + 1), handle=handle)
            found.append(counting.found)
        return found

    plain, watched = waits(False), waits(True)
    assert [len(a) > len(b) for a, b in zip(watched, plain, strict=True)] == [True, False, True, False, False]
    assert watched[1] == plain[1]


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_between_records_a_device_whose_numbers_cannot_be_read_is_no_hindrance(inside: bool, moved: bool) -> None:
    """Of tensors on meta nothing can be read, counted or copied to the CPU. A Trainer moves a model to its device after
    the monitor was made."""
    with torch.device("cpu" if moved else "meta"):
        model = Plain()
    ids = torch.zeros(3, 12, dtype=torch.int64, device="meta")
    with pytest.raises(RuntimeError):
        ids.nonzero()
    monitor = Monitor(None, model, 50, table=model.table, head=model.out)
    model.to("meta")
    monitor.resume(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(3):
            z = model(ids, labels=ids) if inside else model(ids)
            torch.nn.functional.cross_entropy(z.flatten(0, 1), ids.flatten()).backward()
            assert (monitor._taps.labels is not None) is (inside or step == 0)
            optimizer.step()
            optimizer.zero_grad()
            monitor.step()
    assert not monitor.guard._said
    for one in (monitor._taps.hidden, monitor._taps.ids, monitor._taps.targets):
        assert one is not None
        assert one.is_meta


def fails(*_: Any, **__: Any) -> Any:
    raise ArithmeticError("a planted fault")


FAULTS = {
    "taps.Taps._count": ["count ids", "keep states"],
    "taps.Taps.attachments": ["follow the model's forward", "read the batch"],
    "reading.RowsReader.read": ["read the head"],
    "reading.LossReader": ["read the loss"],
    "reading.LossReader.numbers": ["read the head"],
    "reading.Reading.follow": ["follow the model's forward"],
    "reading.Reading.read": ["read a record"],
    "reading.Reading._batch_of": ["read the batch"],
    "reading.Reading._attached_numbers": ["read the attached loss"],
    "reading.kappa_by_frequency": ["read kappa"],
    "reading.states_numbers": ["read states"],
    "monitor.Rules.see": ["apply the rules to a record"],
    "monitor.RunFile.begin": ["write its file"],
    "monitor.RunFile.append": ["write its file"],
    "monitor.RunFile.close": ["close its file"],
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_an_error_of_the_monitor_is_said_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, strict: bool
) -> None:
    """Also where warnings are errors."""
    model = narrow_gpt2()
    expected = train(narrow_gpt2(), None, range(4))
    with warnings.catch_warnings(record=not strict) as said:
        warnings.simplefilter("error" if strict else "always")
        monitor = Monitor(tmp_path / "run", model, 1)
        monkeypatch.setattr(f"uncone.training.monitor.{name}", fails)
        assert torch.equal(train(model, monitor, range(4)), expected)
        monitor.detach()
    assert monitor.guard._said == set(FAULTS[name])
    if said is not None:
        assert sorted(str(one.message).split(",")[0] for one in said) == [
            f"the monitor could not {what}" for what in FAULTS[name]
        ]
    if "RunFile" not in name:
        assert [line["step"] for line in lines(tmp_path / "run")] == [1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore:step ")
def test_what_is_called_with_a_warning_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Warns:
        def see(self, step: int, numbers: Any) -> list[Any]:
            return [SimpleNamespace(rule="rank", name="a", text="It fell."), object()]

    import sys

    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(alert=fails))
    model = narrow_gpt2()
    with Monitor(tmp_path / "run", model, 1, rules=Warns(), on_warning=fails) as monitor:
        with pytest.warns(UserWarning, match="could not") as said:
            train(model, monitor, range(3))
        others = [str(one.message).split(",")[0] for one in said if "could not" in str(one.message)]
    assert sorted(others) == [
        f"the monitor could not {what}" for what in ("call on_warning", "send an alert to trackio", "warn")
    ]
    assert [line["step"] for line in lines(tmp_path / "run")] == [1, 1, 2, 2, 3, 3]


@pytest.mark.filterwarnings("ignore:step ", "ignore:the monitor could not read the loss")
def test_numbers_that_are_not_finite_are_read_as_such(tmp_path: Path) -> None:
    model = narrow_gpt2()
    monitor = Monitor(tmp_path / "run", model, 1)
    train(model, monitor, range(2))
    with torch.no_grad():
        model.transformer.wte.weight[5] = torch.nan
    train(model, monitor, range(2, 4))
    monitor.detach()
    said = [line["warning"]["name"] for line in lines(tmp_path / "run") if "warning" in line]
    assert "table.norm_largest" in said
    own = [line for line in lines(tmp_path / "run") if "warning" not in line]
    assert [line["step"] for line in own] == [1, 2, 3, 4]
    assert own[-1]["table.norm_largest"] is own[-1]["states.norm_median"] is None
    assert {"table.untouched", "table.dead", "gradient.rare.kappa"} <= set(own[-1])
