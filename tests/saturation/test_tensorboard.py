"""Event files of TensorBoard: bytes that it wrote, records made by hand, cut and damaged ones."""

import base64
import struct
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from tests.report.curves_example import STEPS
from uncone.errors import InputError
from uncone.saturation.tables.sources import open_table
from uncone.saturation.tables.tensorboard import checksum


def _field(number: int, kind: int, content: bytes) -> bytes:
    return bytes([number << 3 | kind]) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _message(number: int, content: bytes) -> bytes:
    return _field(number, 2, _varint(len(content)) + content)


def _record(content: bytes) -> bytes:
    head = struct.pack("<Q", len(content))
    return head + struct.pack("<I", checksum(head)) + content + struct.pack("<I", checksum(content))


def _event(tag: str, step: int, value: float, form: str = "simple") -> bytes:
    if form == "simple":
        number = _field(2, 5, struct.pack("<f", value))
    elif form == "packed":
        number = _message(8, _field(1, 0, b"\1") + _message(5, struct.pack("<f", value)))
    else:
        number = _message(8, _field(1, 0, b"\2") + _message(2, b"") + _message(4, struct.pack("<d", value)))
    summary = _message(1, _message(1, tag.encode()) + number)
    return _record(_field(1, 1, struct.pack("<d", 1.7e9)) + _field(2, 0, _varint(step)) + _message(5, summary))


def events(form: str = "simple") -> bytes:
    head = _record(_field(1, 1, struct.pack("<d", 1.7e9)) + _message(3, b"brain.Event:2"))
    return head + b"".join(_event("eval/loss", 1000 * s, 3.0 + 0.01 * s, form) for s in range(1, 31))


def test_the_checksum_is_that_of_the_standard() -> None:
    """CRC-32C of "123456789" is 0xE3069283 (RFC 3720, appendix B.4 gives others of the same code)."""
    crc = 0xE3069283
    assert checksum(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    crc = 0x8A9136AA  # of 32 zero bytes, from RFC 3720
    assert checksum(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@pytest.mark.parametrize("form", ["simple", "packed", "raw"])
def test_scalars_of_tensorboard_are_curves(tmp_path: Path, form: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.out.tfevents.1.host.0").write_bytes(events(form))
    again = _event("eval/loss", 30000, 3.301) + _record(bytes(2**17))
    (tmp_path / "run" / "events.out.tfevents.2.host.0").write_bytes(again)
    record = uncone.judge_curves(tmp_path)
    (curve,) = record.curves
    assert (curve.model, curve.task, curve.metric, curve.checkpoints) == ("run", "eval", "loss", 30)
    assert curve.declined
    assert curve.final == pytest.approx(3.301)
    assert "1 value at a step that has another" in record.notes[0]


WRITTEN = (
    "eNrzYICAf5M85nK+W9y3Wf7gLUcp3qSixMw8Pdey1LwSK6MgPS6dktS84vyipPzEohS94tLc3MSiSr3yosyS1CK9VJCq+LTMnNR4"
    "iAjjhC/M2lBz26QPe3NCmB/sBRi15LgEubhKQKbr5+QXF4syMCg4cHFyMeUUAZkL7C2sQ5bqQLV+WXfGFaF1DRMWvQvs4XoV7H24"
    "Mg10oXptHLt+I/R+WMSCRTODHVxzg62cwcwoVajmV3vMPiM0s2pJcIlxcaSWJeboJyYnO3FxMAoxaLEwMDjYe2R28AEAOpxPwQ=="
)
"""What TensorBoard 2.21 wrote, packed: three steps of two scalars, and one as a tensor."""


def test_scalars_that_tensorboard_wrote(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(zlib.decompress(base64.b64decode(WRITTEN)))
    table = open_table(tmp_path)
    tags = zip(*(table.columns[name] for name in ("task", "metric", "step", "value")), strict=True)
    steps = (1, 300, 70000)
    losses = {("train", "loss", step, value) for step, value in zip(steps, (2.5, 1.25, 0.125), strict=True)}
    rates = {("", "lr", step, value) for step, value in zip(steps, (1.25, 0.625, 0.0625), strict=True)}
    assert set(tags) == losses | rates | {("eval", "acc", 5, 0.75)}
    assert table.notes == ()


def test_scalars_written_by_torch(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(str(tmp_path))
    for step in STEPS:
        writer.add_scalar("loss", 1 / step, step)
    writer.close()
    columns = open_table(tmp_path).columns
    assert list(columns["step"]) == STEPS
    assert list(columns["value"]) == pytest.approx([1 / step for step in STEPS], rel=1e-6)


def test_a_file_that_is_still_written_is_read_up_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(events()[:-7])
    record = uncone.judge_curves(path)
    assert record.curves[0].checkpoints == 29
    assert "is cut or still being written" in record.notes[0]
    damaged = bytearray(events())
    damaged[-9] ^= 1
    path.write_bytes(damaged)
    assert "is damaged at byte" in uncone.judge_curves(path).notes[0]
    path.write_bytes(b"not an event file, not at all")
    with pytest.raises(InputError, match=r"expected scalars.*is damaged at byte 0"):
        uncone.judge_curves(path)


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_message_behind_right_checksums_is_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.out.tfevents.1")
        path.write_bytes(_event("loss", 1, 1.0) + _record(content))
        assert len(open_table(path)) >= 1
