from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncone.model import cached_snapshot

COMMIT = "0123456789abcdef0123456789abcdef01234567"
VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def keep(hub: Path, folder: str, ref: str = "main", commit: str = COMMIT) -> Path:
    path = hub / folder / "refs" / ref
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(commit)
    snapshot = hub / folder / "snapshots" / commit
    snapshot.mkdir(parents=True, exist_ok=True)
    return snapshot


def test_names_with_and_without_an_organisation(hub):
    assert cached_snapshot("gpt2") is None
    assert keep(hub, "models--gpt2") == cached_snapshot("gpt2")
    assert keep(hub, "models--EleutherAI--pythia-70m") == cached_snapshot("EleutherAI/pythia-70m")


def test_revisions_are_branches_tags_or_commits(hub):
    other = COMMIT[::-1]
    snapshot = keep(hub, "models--a--b", "refs/pr/1", other)
    assert cached_snapshot("a/b") is None
    assert cached_snapshot("a/b@refs/pr/1") == snapshot
    assert cached_snapshot(f"a/b@{other}") == snapshot
    assert cached_snapshot(f"a/b@{COMMIT}") is None
    assert cached_snapshot("a/b@") is None


@pytest.mark.parametrize(
    ("variable", "value", "below"),
    [
        ("HF_HUB_CACHE", "x", "x"),
        ("HUGGINGFACE_HUB_CACHE", "x", "x"),
        ("HF_HOME", "x", "x/hub"),
        ("XDG_CACHE_HOME", "x", "x/huggingface/hub"),
        ("HOME", "x", "x/.cache/huggingface/hub"),
    ],
)
def test_where_the_cache_lies(tmp_path, monkeypatch, variable, value, below):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / value))
    assert keep(tmp_path / below, "models--gpt2") == cached_snapshot("gpt2")


def test_a_reference_to_something_else_than_a_commit_is_not_followed(hub):
    keep(hub, "models--gpt2")
    (hub / "models--gpt2" / "refs" / "main").write_text("../../..")
    assert cached_snapshot("gpt2") is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/../b",
        "/etc",
        "a/b/c",
        "a//b",
        "a--b",
        "-a",
        "a.",
        "a b",
        "a\0b",
        "a\n",
        "x" * 97,
        "a@../b",
        "a@b/../c",
        "é",
    ],
)
def test_what_is_no_name_gives_nothing(hub, name):
    assert cached_snapshot(name) is None


@given(st.text(alphabet="ab./-_@\\\0 ", max_size=20))
def test_nothing_escapes_the_cache(tmp_path_factory, name):
    root = tmp_path_factory.mktemp("cache") / "deep" / "hub"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", str(root))
        keep(root, "models--a")
        keep(root, "models--a--b", "a/b")
        found = cached_snapshot(name)
    assert found is None or found.resolve().is_relative_to(root.resolve())
