"""Every command finds a spec once, opens and loads a model once, and reads a text once."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import uncone
from tests.command import run_command
from tests.edits.language_models import TEXT, add_tokenizer, saved
from uncone.edits import head, loss
from uncone.model import last_states, layered_model, text_sources
from uncone.model import open as opening
from uncone.model.text_sources import open_texts
from uncone.model.token_counts import count_tokens

MODEL = {"found": 1, "opened": 1}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("opened")
    for name in ("m", "n"):
        add_tokenizer(saved(place / name, "GPT2LMHeadModel"))
    (place / "t.txt").write_text(TEXT * 5)
    uncone.diagnose(place / "m").save(place / "d.json")
    return place


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a spec is found, a checkpoint opened, a model loaded and a file of text read."""
    calls = Counter[str]()

    def count(name: str, owner: Any, function: str) -> None:
        before: Callable[..., Any] = getattr(owner, function)
        monkeypatch.setattr(owner, function, lambda *of, **how: (calls.update([name]), before(*of, **how))[1])

    count("found", opening.Opened, "__init__")
    count("opened", opening, "open_model_files")
    for module in (layered_model, last_states, head, loss):
        count("loaded", module, "load_model")
    count("read", text_sources, "open_unpacked")
    return calls


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("diagnose m", MODEL),
        ("diagnose m#head --html o.html", MODEL),
        ("diagnose m --text t.txt", MODEL | {"loaded": 1, "read": 1}),
        ("diagnose m --text t.txt --html o.html", MODEL | {"loaded": 1, "read": 1}),
        ("compare m n --json o.json", {"found": 2, "opened": 2}),
        ("check d.json --max input.mean_cosine=1", {}),
        ("count m t.txt --save o.npy", MODEL | {"read": 1}),
        ("repair m#input o.npy --method center --save o.safetensors", MODEL),
        ("repair m#input o.npy --method center --fit-on n#input", {"found": 2, "opened": 2}),
        ("repair-tokens m o --tokens 3", {"found": 1}),
        ("center-head m o", {"found": 1, "loaded": 3}),  # the original, the same in a wider dtype, and the copy
    ],
)
def test_a_command_opens_what_it_names_once(
    command: str,
    expected: dict[str, int],
    place: Path,
    calls: Counter[str],
    tmp_path: Path,
    monkeypatch: Any,
    capsys: Any,
) -> None:
    for file in place.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    verb, *arguments = command.split()
    status, _, error = run_command(verb, capsys, *arguments)
    assert (status, error) == (0, "")
    assert calls == Counter(expected)


def test_what_is_kept_of_texts_is_read_again_without_their_files(tmp_path: Path) -> None:
    add_tokenizer(tmp_path)
    names = [tmp_path / f"{i}.txt" for i in range(3)]
    for name in names:
        name.write_text((TEXT + "\n") * 100)
    whole = [list(source.pieces()) for source in open_texts(names)]
    for keep, kept in ((0, 0), (1, 1), (len(TEXT) * 101 + 101, 2), (2**30, 3)):
        texts = count_tokens(tmp_path, names, words=False, keep=keep).texts
        assert [source.is_whole for source in texts] == [True] * kept + [False] * (3 - kept)
        assert [list(source.pieces()) for source in texts] == whole
    for name in names:
        name.unlink()
    assert [list(source.pieces()) for source in texts] == whole


def test_an_opened_spec_stands_for_its_text(tmp_path: Path) -> None:
    add_tokenizer(saved(tmp_path / "m", "GPT2LMHeadModel"))
    opened = opening.open_spec(f"{tmp_path}/m#head")
    assert opening.open_spec(opened) is opened
    assert (str(opened), opened.full_name) == (f"{tmp_path}/m#head", f"{tmp_path.name}/m#head")
    assert uncone.open_rows(opened) is uncone.open_rows(opened)
    assert uncone.diagnose(opened) == uncone.diagnose(str(opened))
