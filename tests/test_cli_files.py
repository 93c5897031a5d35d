"""No command writes over what it reads: with every option, under every name of a file, and into every model."""

import hashlib
import inspect
import os
import shutil
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.command import run_command
from uncone import InputError, repair
from uncone.cli.files import role_of
from uncone.cli.program import app
from uncone.roles import Role

VERBS = sorted(
    f"{name} {part}".rstrip()
    for name in app
    if not name.startswith("-")
    for part in (app[name] if app[name].default_command is None else [""])
    if not part.startswith("-")
)
READING, WRITING = (Role.SPEC, Role.READ), (Role.WRITE, Role.OUT, Role.KEEP)
NAMES_NO_FILE = {"columns", "fixed", "higher", "lower", "ranks", "name", "names", "device", "method", "dtype"}
NAMES_NO_FILE |= {"max", "metric", "min", "address", "first", "quantisers"}
"""Options of text that name no file."""


def _parameters(verb: str) -> dict[str, inspect.Parameter]:
    command = app
    for name in verb.split():
        command = command[name]
    return dict(inspect.signature(command.default_command, eval_str=True).parameters)


def _roles(verb: str, wanted: tuple[Role, ...]) -> list[str]:
    return [name for name, parameter in _parameters(verb).items() if role_of(parameter) in wanted]


PAIRS = [(verb, read, write) for verb in VERBS for read in _roles(verb, READING) for write in _roles(verb, WRITING)]


def _arguments(verb: str, given: dict[str, Path | str]) -> list[str]:
    """A command line on which `given` stands and every other argument that is required names a new file."""
    positional, options = list[str](), list[str]()
    for name, parameter in _parameters(verb).items():
        value = given.get(name)
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            positional.append(str(value or given.get("source") or "other"))
        elif value is not None:
            options += [f"--{name.replace('_', '-')}", str(value)]
        elif parameter.default is inspect.Parameter.empty:
            options += [f"--{name.replace('_', '-')}", {"task": "ann"}[name]]
    return [*positional, *options]


def _types(annotation: Any) -> set[type]:
    """The plain types in an annotation."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _types(parts[0])
    if origin in (typing.Union, types.UnionType, list, tuple):
        return set().union(*map(_types, parts))
    return {type(parts[0])} if origin is typing.Literal else {annotation}


def _is_closed(annotation: Any) -> bool:
    """Only words of a list are taken."""
    parts = [part for part in typing.get_args(annotation) if part is not type(None)]
    return typing.get_origin(annotation) is typing.Literal or any(map(_is_closed, parts[:1]))


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_that_may_name_a_file_says_what_is_done_with_it(verb: str) -> None:
    for name, parameter in _parameters(verb).items():
        kinds, is_closed = _types(parameter.annotation), _is_closed(parameter.annotation)
        if Path in kinds or (str in kinds and not is_closed and name not in NAMES_NO_FILE):
            assert role_of(parameter) is not None, f"{verb} {name}: give it a Role"


def test_every_command_is_walked() -> None:
    assert {verb for verb, _, _ in PAIRS} == set(VERBS) - {"measures", "doctor"}  # which name no file
    assert len(PAIRS) > 40


def _spellings(source: Path) -> list[Path | str]:
    """The file, links to it, and other ways there. A hard link is as its name in another case on some systems."""
    linked, other = source.with_name("link" + source.suffix), source.with_name(source.name.upper())
    linked.symlink_to(source)
    os.link(source, other)
    roundabout = source.parent / ".." / source.parent.name / "." / source.name
    return [source, linked, other, roundabout, os.path.relpath(source)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run: their files are named relative to it, too."""
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "source.npy", np.random.default_rng(0).standard_normal((40, 4), dtype=np.float32))
    np.save(tmp_path / "other.npy", np.ones((40, 4), dtype=np.float32))
    shutil.copyfile("other.npy", "other")
    return tmp_path


def _content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def _refused(folder: Path, verb: str, capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> None:
    """The command is refused for what it would write over, and every file is as it was."""
    before = _content(folder)
    status, _, error = run_command(verb, capsys, *arguments)
    assert (status, _content(folder)) == (1, before), (arguments, error)
    assert "an output file other than the input" in error or "outside the model" in error, (arguments, error)


@pytest.mark.parametrize(("verb", "read", "write"), PAIRS)
def test_no_command_writes_over_a_file_that_it_reads(
    verb: str, read: str, write: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder / "s.npy"
    shutil.copyfile("source.npy", source)
    for target in _spellings(source):
        overwrite = ["--overwrite"] if "overwrite" in _parameters(verb) else []
        _refused(folder, verb, capsys, *_arguments(verb, {read: source, write: target}), *overwrite)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if Role.SPEC in map(role_of, _parameters(verb).values())])
def test_a_part_of_a_source_is_the_source(verb: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("parts.npz", a=np.ones((9, 3)), b=np.ones((9, 3)))
    spec = _roles(verb, (Role.SPEC,))[0]
    for write in _roles(verb, WRITING):
        target = "parts.npz#b" if role_of(_parameters(verb)[write]) is Role.OUT else "parts.npz"
        _refused(folder, verb, capsys, *_arguments(verb, {spec: "parts.npz#a", write: target}))


@pytest.fixture
def models(folder: Path) -> Path:
    """A model of transformers in shards, of which one lies elsewhere."""
    model = folder / "model"
    (model / "sub").mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "blobs" / "0123").write_bytes(b"weights")
    (model / "model-00001-of-00001.safetensors").symlink_to(folder / "blobs" / "0123")
    for name in ("config.json", "tokenizer.json", "model.safetensors.index.json", "sub/notes.txt", "sub/x.safetensors"):
        (model / name).write_text('{"model_type": "gpt2"}')
    return folder


SPEC_VERBS = [(verb, spec) for verb in VERBS for spec in _roles(verb, (Role.SPEC,))]
THERE = ("config.json", "tokenizer.json", "model-00001-of-00001.safetensors", "sub/notes.txt")
NEW = ("model/new.html", "model/sub/new.json", "linked/new.html", "MODEL/../model/new.html")
IN_A_MODEL = (*(f"model/{name}" for name in THERE), "blobs/0123", *NEW)


@pytest.mark.parametrize(("verb", "spec"), SPEC_VERBS)
@pytest.mark.parametrize(
    "source", ["model", "linked", "model/model-00001-of-00001.safetensors", "model/sub/x.safetensors"]
)
def test_models_stay_whole(verb: str, spec: str, source: str, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (models / "linked").symlink_to(models / "model")
    (models / "MODEL").mkdir()
    for write in _roles(verb, WRITING):
        for target in IN_A_MODEL if source != "linked" else IN_A_MODEL[:1] + IN_A_MODEL[-3:]:
            _refused(models, verb, capsys, *_arguments(verb, {spec: source, write: target}))


def test_a_model_in_parts_keeps_them_all(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"part-0000{i}-of-00002.gguf" for i in (1, 2)]
    for name in names:
        (folder / name).write_bytes(b"GGUF")
    _refused(folder, "diagnose", capsys, names[0], "--html", names[1])


def test_a_folders_files_are_kept_and_results_written_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / "rows").mkdir()
    values = pa.array(np.random.default_rng(0).standard_normal((50, 4)).tolist(), pa.list_(pa.float32()))
    for name in ("a", "b"):
        pq.write_table(pa.table({"vector": values}), folder / "rows" / f"{name}.parquet")
    _refused(folder, "diagnose", capsys, "rows", "--json", "rows/b.parquet")
    for _ in range(2):
        assert run_command("diagnose", capsys, "rows", "--json", "rows/d.json")[0] == 0


def test_data_of_a_task_are_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "data" / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "qrels/test.tsv"):
        (folder / "data" / name).write_text("judgements")
    for target in ("data/corpus.jsonl", "data/qrels/test.tsv"):
        of = ("--task", "retrieval", "--data", "data", "--json", target)
        _refused(folder, "evaluate", capsys, "source.npy", *of)


def test_two_results_are_two_files_in_any_case(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for first, second in (("r.json", "r.json"), ("r.json", "R.JSON"), ("r.json", "./r.json")):
        status, _, error = run_command("diagnose", capsys, "source.npy", "--json", first, "--html", second)
        assert status == 1
        assert "expected two files to write" in error
    for _ in range(2):  # results beside their source are written twice
        assert run_command("diagnose", capsys, "source.npy", "--json", "d.json", "--html", "d.html")[0] == 0


def test_the_functions_behind_repair_replace_no_source_either(folder: Path) -> None:
    repair("source.npy", "fitted.npy", method="center", save="t.safetensors")
    np.save("counts.npy", np.arange(40))
    before = _content(folder)
    for out, options in (
        ("source.npy", {"method": "center"}),
        ("t.safetensors", {"load": "t.safetensors"}),
        ("counts.npy", {"method": "zipf_center", "counts": "counts.npy"}),
        ("other.npy", {"method": "center", "fit_on": "other.npy"}),
        ("new.npy", {"method": "center", "fit_on": "other.npy", "save": "other.npy"}),
        ("new.npy", {"method": "center", "save": "source.npy"}),
    ):
        with pytest.raises(InputError, match="expected an output file other than the input"):
            repair("source.npy", out, overwrite=True, **options)
        assert _content(folder) == before


def test_a_link_named_like_a_result_is_the_file_it_leads_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "train.tsv").write_text("sentences")
    (folder / "r.json").symlink_to(folder / "data" / "train.tsv")
    os.link(folder / "data" / "train.tsv", folder / "h.json")
    for target in ("r.json", "h.json"):
        _refused(folder, "evaluate", capsys, "source.npy", "--task", "sts", "--data", "data", "--json", target)


def test_a_folder_takes_no_new_file_that_would_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rows").mkdir()
    (folder / "rows" / "a.parquet").write_bytes(b"PAR1")
    arguments = ("source.npy", "rows/new.parquet", "--method", "center", "--fit-on", "rows")
    assert "whose files are read" in run_command("repair", capsys, *arguments)[2]


def test_kept_vectors_are_no_target(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cache").mkdir()
    (folder / "cache" / "0123.npy").write_bytes(b"kept")
    for data, cache in (("cache", "cache2"), ("other", "cache")):
        of = ("--task", "sts", "--data", data, "--cache", cache, "--json", "cache/0123.npy")
        _refused(folder, "evaluate", capsys, "source.npy", *of)


def test_an_unrelated_config_makes_no_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "config.json").write_text('{"name": "my program"}')
    save_file({"x": torch.ones(40, 4) + torch.eye(40, 4)}, folder / "v.safetensors")
    for _ in range(2):
        assert run_command("diagnose", capsys, "v.safetensors", "--json", "r.json")[0] == 0
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    assert "outside the model" in run_command("diagnose", capsys, "v.safetensors", "--json", "new.json")[2]


ENDINGS = {"html": ("page.html", "PAGE.HTM"), "json": ("record.json",), "markdown": ("note.md", "note.markdown")}


@pytest.mark.parametrize("verb", VERBS)
def test_an_ending_of_another_kind_is_refused_before_any_work(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.npy").write_bytes(b"\xff no rows: who read them would say so")
    given: dict[str, Path | str] = {"source": "x.npy", "out": "out"}
    for option in ENDINGS.keys() & _parameters(verb).keys():
        others = ("page", "page.npy", *(name for kind, names in ENDINGS.items() if kind != option for name in names))
        for name in others:
            status, _, error = run_command(verb, capsys, *_arguments(verb, given | {option: name}))
            assert status == 1
            assert f"for --{option}, got {name}: say" in error
        for name in ENDINGS[option]:
            status, _, error = run_command(verb, capsys, *_arguments(verb, given | {option: name}))
            assert "a name that ends in" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
