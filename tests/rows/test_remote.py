"""Files that are elsewhere: equal to those of this machine, whatever the connection does, and no server is believed."""

import hashlib
import importlib.util
import io
import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open

import uncone
from tests.server import Answer, Server, serving
from uncone.errors import InputError
from uncone.rows.bytes import MemoryFile
from uncone.rows.remote import source
from uncone.rows.remote.address import address_of
from uncone.rows.safetensors import read_header, to_bytes

pytestmark = pytest.mark.skipif(
    not any(importlib.util.find_spec(name) for name in ("httpx", "httpx2")),
    reason="neither httpx nor httpx2 is installed",
)
X = np.random.default_rng(0).normal(0.5, 1, (5000, 48)).astype(np.float16)
FILES = {"x.safetensors": to_bytes({"a": X, "b": X[:7].astype(np.float32)}, {})}


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "WAITS", (0.0, 0.0))


def npy(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


def read(server: Server, name: str = "x.safetensors#a", **options: Any) -> np.ndarray:
    rows = uncone.open_rows(f"{server.url}/{name}", **options)
    return rows.read(0, rows.shape[0])


def test_bytes_and_moments_are_those_of_the_local_file(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(FILES["x.safetensors"])
    with serving(FILES) as server:
        local, remote = (uncone.open_rows(f"{where}/x.safetensors#a") for where in (tmp_path, server.url))
        assert remote.shape == local.shape
        assert remote.dtype == "float16"
        ours, theirs = uncone.Moments.of(remote).tensors(), uncone.Moments.of(local).tensors()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)


def test_one_pass_costs_the_tensor_and_the_header() -> None:
    with serving(FILES) as server:
        uncone.Moments.of(uncone.open_rows(f"{server.url}/x.safetensors#a"))
        assert server.sent <= X.nbytes + 2**14
        uncone.calibrate(f"{server.url}/x.safetensors#a", most_pairs=10_000)  # several passes, one download
        assert server.sent <= 2 * (X.nbytes + 2**14)


@pytest.mark.parametrize("name", ["x.npy", "x.parquet"])
def test_other_formats_are_read_by_ranges_too(name: str, tmp_path: Path) -> None:
    x = X.astype(np.float32)
    if name == "x.parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        column = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
        pq.write_table(pa.table({"v": column, "big": ["x" * 50] * len(x)}), tmp_path / name, row_group_size=1000)
        content = (tmp_path / name).read_bytes()
    else:
        content = npy(x)
    with serving({name: content}) as server:
        assert np.array_equal(read(server, name), x)
        assert read(server, name).dtype == np.float32


def change(**headers: str) -> Callable[[Answer], None]:
    def make(answer: Answer) -> None:
        answer.headers.update({name.replace("_", "-"): value for name, value in headers.items()})

    return make


def cut(answer: Answer) -> None:
    answer.cut = 100_000


def busy(answer: Answer) -> None:
    if answer.number % 2:
        answer.status, answer.body, answer.headers = 503, b"later", {"Retry-After": "0"}


def damaged_once(answer: Answer) -> None:
    digest = b64encode(hashlib.sha256(answer.body).digest()).decode()
    answer.headers["Content-Digest"] = f"sha-256=:{digest}:"
    if answer.number == 1:
        answer.body = answer.body[:-1] + bytes([answer.body[-1] ^ 1])


@pytest.mark.parametrize("fault", [cut, busy, damaged_once])
def test_what_breaks_is_asked_for_again(fault: Callable[[Answer], None]) -> None:
    with serving(FILES, change=fault) as server:
        assert np.array_equal(read(server), X.astype(np.float32))


def other_range(answer: Answer) -> None:
    if answer.number:
        answer.headers["Content-Range"] = answer.headers["Content-Range"].replace("bytes ", "bytes 1")


def other_bytes(answer: Answer) -> None:
    answer.headers["Content-Digest"] = f"sha-256=:{b64encode(bytes(32)).decode()}:"


def replaced(answer: Answer) -> None:
    answer.headers["ETag"] = f'"{answer.number}"'


def grown(answer: Answer) -> None:
    if answer.number:
        answer.headers["Content-Range"] += "0"


def silent(answer: Answer) -> None:
    if answer.number:
        answer.cut = 0


def no_more_ranges(answer: Answer) -> None:
    if answer.number:
        answer.status = 200
        del answer.headers["Content-Range"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (other_range, "the server handles ranges wrongly"),
        (change(Content_Range=""), "got no Content-Range: the server handles"),
        (change(Content_Encoding="gzip"), "got it compressed"),
        (other_bytes, "its checksum does not match the bytes"),
        (replaced, "it has a new ETag or date; read it again"),
        (grown, "to stay the same while it is read, got a change: it had"),
        (silent, r"got \d+ of \d+ bytes at offset \d+ in 3 tries \(\w+\): check the connection"),
        (no_more_ranges, "it is no longer served in ranges"),
    ],
)
def test_a_server_that_lies_or_is_gone_is_named(fault: Callable[[Answer], None], told: str) -> None:
    with serving(FILES, change=fault) as server, pytest.raises(InputError, match=told):
        read(server)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (404, "no file http.*: check the name"),
        (401, "expected permission to read"),
        (403, r"\.netrc"),
        (418, "got status 418"),
    ],
)
def test_a_refusal_says_what_to_do(status: int, told: str) -> None:
    def fault(answer: Answer) -> None:
        answer.status, answer.headers = status, {}

    with serving(FILES, change=fault) as server, pytest.raises(InputError, match=told):
        read(server)


def test_a_server_without_ranges_is_refused_unless_it_is_allowed() -> None:
    with (
        serving(FILES, ranges=False) as server,
        pytest.raises(
            InputError, match=r"got only the whole, [\d,]+ bytes: copy the file, or allow this with `diagnose --allow"
        ),
    ):
        read(server)
    with serving(FILES, ranges=False) as server:
        assert np.array_equal(read(server, allow_full=True), X.astype(np.float32))
        assert server.sent == len(FILES["x.safetensors"])
        found = uncone.diagnose(f"{server.url}/x.safetensors#a", allow_full=True)
    assert (found.subjects[0].n, found.subjects[0].d) == X.shape


def test_a_whole_file_that_was_cut_is_asked_for_again() -> None:
    def once(answer: Answer) -> None:
        answer.cut = 1000 if answer.number == 0 else None

    with serving(FILES, ranges=False, change=once) as server:
        assert np.array_equal(read(server, allow_full=True), X.astype(np.float32))


def test_nobody_who_listens_is_an_error() -> None:
    with serving({}) as server:
        url = server.url
    with pytest.raises(InputError, match=r"got nothing in 3 tries \(ConnectError\): check the connection"):
        uncone.open_rows(f"{url}/x.npy")


def test_a_secret_in_a_url_is_never_shown(tmp_path: Path) -> None:
    with serving(FILES) as server:
        host = server.url.removeprefix("http://")
        spec = f"http://me:secret1@{host}/x.safetensors?sig=secret2#a"
        rows = uncone.open_rows(spec)
        assert rows.name == f"http://{host}/x.safetensors#a"
        assert server.asked[0][0].endswith("?sig=secret2")
        assert server.asked[0][1]["authorization"].startswith("Basic ")
        record = uncone.diagnose(spec)
        assert f"uncone calibrate 'http://{host}/x.safetensors#a'" in record.to_json()
        assert "secret" not in record.to_json() + str(record)
        repaired = uncone.repair(spec, tmp_path / "o.npy", method="center")
        assert "/x.safetensors#a" in repaired.next_step
        assert not re.search(r"secret\d", repaired.to_json() + str(repaired))
        with pytest.raises(InputError) as of_a_model:
            uncone.repair(f"http://me:secret1@{host}/m?sig=secret2", tmp_path / "o", method="center")
        assert "secret" not in str(of_a_model.value)
        for wrong in (spec.replace("#a", "#c"), spec.replace("x.safe", "y.safe")):
            with pytest.raises(InputError) as error:
                uncone.open_rows(wrong)
            assert "secret" not in str(error.value)


def test_a_token_of_the_hub_stays_with_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(FILES) as store:

        def sent_on(answer: Answer) -> None:
            answer.status, answer.headers = 302, {"Location": f"{store.url}/x.safetensors"}

        files = {"org/m/resolve/main/x.safetensors": b"", "datasets/org/d/resolve/v1/x.safetensors": b""}
        with serving(files, change=sent_on) as hub:
            monkeypatch.setenv("HF_ENDPOINT", hub.url)
            monkeypatch.setenv("HF_TOKEN", "hf_secret")
            for spec in ("hf://org/m/x.safetensors#a", "hf://datasets/org/d@v1/x.safetensors#a"):
                rows = uncone.open_rows(spec)
                assert np.array_equal(rows.read(0, 7), X[:7].astype(np.float32))
                assert rows.name == spec
    assert {headers.get("authorization") for _, headers in hub.asked} == {"Bearer hf_secret"}
    assert not any("authorization" in headers for _, headers in store.asked)


def test_https_does_not_become_http() -> None:
    class Answered:
        status_code, headers = 206, {"Content-Range": "bytes 0-0/1"}
        url = type("Url", (), {"scheme": "http"})()

    from uncone.rows.remote.http import HttpFile

    file = HttpFile.__new__(HttpFile)
    file._address, file.name = address_of("https://host/x.npy"), "https://host/x.npy"
    with pytest.raises(InputError, match="expected https all the way"):
        file._check(Answered(), 0, 1)


@pytest.mark.parametrize("spec", ["hf://model#head", "hf://a/../b#head", "hf://org/#head", "https://#x", "s3://"])
def test_a_url_that_names_nothing_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match="expected"):
        uncone.open_rows(spec)


def test_a_scheme_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match="expected hf://, https://, s3:// or another scheme of fsspec, got nope://"):
        uncone.open_rows("nope://host/x.npy")


def test_a_part_that_is_empty_is_refused() -> None:
    with pytest.raises(InputError, match="expected a tensor's name after '#'"):
        uncone.open_rows("https://host/model#")


def test_stores_of_fsspec_are_read_alike() -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    with memory.open("/bucket/x.npy", "wb") as file:
        file.write(npy(X))
    rows = uncone.open_rows("memory://bucket/x.npy")
    assert np.array_equal(rows.read(0, len(X)), X.astype(np.float32))
    with memory.open("/bucket/x.npy", "wb") as file:  # another in its place
        file.write(npy(X[:9]))
    with pytest.raises(InputError, match="to stay the same while it is read"):
        rows.read(0, 5)
    memory.mkdir("/bucket.npy")
    for name, told in {"bucket/y.npy": "no file", "bucket.npy": "expected a file at"}.items():
        with pytest.raises(InputError, match=f"{told} memory://{name}"):
            uncone.open_rows(f"memory://{name}")


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.lists(st.integers(0, 5), max_size=3), max_size=3), st.data()
)
def test_a_header_is_believed_where_the_library_believes_it(
    tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, list[int]], data: st.DataObject
) -> None:
    content = bytearray(to_bytes({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, {"m": "1"}))
    length, faults = int.from_bytes(content[:8], "little"), data.draw(st.integers(0, 2))
    for _ in range(faults):
        at = data.draw(st.integers(0, min(len(content), 8 + length) - 1))
        content[at] = data.draw(st.sampled_from(b'0123456789[]{},:"F \x00\xff'))
    content = content[: len(content) - data.draw(st.sampled_from([0, 0, 1]))]
    path = tmp_path_factory.mktemp("x") / "x.safetensors"
    path.write_bytes(content)
    try:
        with safe_open(path, "np") as file:
            expected = set(file.keys())
    except (SafetensorError, OSError):
        expected = None
    remote = MemoryFile("x", 0, np.frombuffer(bytes(content), np.uint8))
    try:
        found = set(read_header(remote)[0])
    except InputError:
        found = None
    assert found == expected or (faults and found is None)  # ours may refuse more
