"""Shards and a head in a store that speaks S3, served by moto in a process of its own."""

import importlib.util
import io
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uncone
from tests.edits.language_models import add_tokenizer, saved
from uncone.errors import InputError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("moto", "flask", "s3fs", "boto3")),
        reason="moto[server] and s3fs are not installed",
    ),
]
D = 16


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("moto") / "log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{url}/moto-api/", timeout=1).close()
                break
            except OSError:
                assert server.poll() is None
                time.sleep(0.2)
        yield url
    finally:
        server.kill()
        server.wait()
        log.close()


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the bucket `vectors`, which is empty."""
    import boto3
    import s3fs

    named = {"AWS_ACCESS_KEY_ID": "key-of-a-test", "AWS_SECRET_ACCESS_KEY": "secret-of-a-test"}
    named |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": endpoint, "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")).close()
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    client.create_bucket(Bucket="vectors")
    return client


def shard(k: int) -> np.ndarray:
    return np.random.default_rng(k).normal(0.3, 1, (400 + k, D)).astype(np.float32)


def put(store: Any, key: str, x: np.ndarray) -> None:
    file = io.BytesIO()
    np.save(file, x)
    store.put_object(Bucket="vectors", Key=key, Body=file.getvalue())


def test_shards_of_a_bucket_are_read_as_files_are(store: Any, tmp_path: Path) -> None:
    for k in range(3):
        put(store, f"a/{k}.npy", shard(k))
        np.save(tmp_path / f"{k}.npy", shard(k))
    here = uncone.diagnose(f"{tmp_path}/*.npy").subjects[0]
    for workers in (None, 2):
        there = uncone.diagnose("s3://vectors/a/*.npy", workers=workers).subjects[0]
        assert there.measurements == here.measurements
        assert there.odd_rows == here.odd_rows
    rows = uncone.open_rows("s3://vectors/a/1.npy")
    assert np.array_equal(rows.read(7, 301), shard(1)[7:301])
    with pytest.raises(InputError, match=r"expected files that 's3://vectors/b/\*\.npy' matches, got none"):
        uncone.open_rows("s3://vectors/b/*.npy")


def test_the_head_of_a_model_in_a_bucket(store: Any, tmp_path: Path) -> None:
    path = saved(tmp_path / "m", "GPT2LMHeadModel", max_shard_size="20KB")
    add_tokenizer(path)
    for file in path.iterdir():
        store.put_object(Bucket="vectors", Key=f"m/{file.name}", Body=file.read_bytes())
    there, here = uncone.open_rows("s3://vectors/m#head"), uncone.open_rows(f"{path}#head")
    assert np.array_equal(there.read(0, there.shape[0]), here.read(0, here.shape[0]))
    assert there.labels == here.labels


def test_parquet_of_a_bucket(store: Any, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for k in range(2):
        column = pa.FixedSizeListArray.from_arrays(pa.array(shard(k).ravel()), D)
        pq.write_table(pa.table({"embedding": column, "id": range(400 + k)}), tmp_path / f"{k}.parquet")
        store.put_object(Bucket="vectors", Key=f"p/{k}.parquet", Body=(tmp_path / f"{k}.parquet").read_bytes())
    rows = uncone.open_rows("s3://vectors/p/*.parquet#embedding")
    assert np.array_equal(rows.read(0, 801), np.concatenate([shard(0), shard(1)]))


def test_what_a_store_lacks_refuses_or_replaces(
    store: Any, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    put(store, "a/0.npy", shard(0))
    for name, told in {"vectors/a/9.npy": "9.npy", "other/0.npy": "other"}.items():
        with pytest.raises(InputError, match=told):
            uncone.open_rows(f"s3://{name}")
    rows = uncone.open_rows("s3://vectors/a/0.npy")
    put(store, "a/0.npy", shard(0) + 1)
    with pytest.raises(InputError, match="to stay the same while it is read, got a change"):
        rows.read(0, 400)
    store.put_object(
        Bucket="vectors", Key="a/cut.npy", Body=(lambda f: (np.save(f, shard(0)), f.getvalue()[:-100])[1])(io.BytesIO())
    )
    with pytest.raises(InputError, match=r"cut\.npy"):
        uncone.open_rows("s3://vectors/a/cut.npy")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    s3fs.S3FileSystem.clear_instance_cache()
    shutil.rmtree(tmp_path / "none", ignore_errors=True)
    with pytest.raises(InputError, match=r"s3://vectors/a/0\.npy") as caught:
        uncone.open_rows("s3://vectors/a/0.npy").read(0, 400)
    assert "secret-of-a-test" not in str(caught.value)
