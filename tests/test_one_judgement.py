"""Planted cases, healthy and faulty: verdict, badge, tiles, caption, terminal, comparison and check say the same."""

import contextlib
import io
import json
import lzma
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from tokenizers import Tokenizer, models

import uncone
from uncone.diagnosis.advice import Advice, advice_for
from uncone.diagnosis.record import LABELS, Diagnosis, Subject
from uncone.records.blocks import Figure, Heading
from uncone.records.parts import Finding, Level

from .command import run_command
from .edits.language_models import saved
from .matrices import gaussian
from .planted import drifted, healthy, low_rank, random_table, rare_tail, rogue, write_model

Tensor = torch.Tensor
V, D = 8000, 64


def giant() -> Tensor:
    x = healthy()
    x[[4000, 5000]] *= 40
    return x


def zero_rows() -> Tensor:
    """The last 40 rows were added and never set."""
    x = healthy()
    x[-40:] = 0
    return x


def equal_rows() -> Tensor:
    x = healthy()
    x[4000:4200] = x[3999]
    return x


def sentences() -> Tensor:
    """An anisotropic cloud of unit vectors, as encoders give: a falling spectrum and no common direction."""
    return torch.nn.functional.normalize(gaussian(600, D, seed=7) * torch.logspace(0, -0.5, D), dim=1)


def tiny(seed: int = 1) -> Tensor:
    return healthy(seed, 256)


@dataclass(frozen=True)
class Case:
    """What is planted, and what all must say of the first subject, and of the head where there is one."""

    name: str
    make: Callable[[], Tensor]
    level: str
    cause: str
    verdict: str
    tile: str = "Mean cosine"
    head: Callable[[], Tensor] | None = None
    of_head: str = ""  # the level of the head's worst finding where it differs
    cap: float | None = None
    is_model: bool = True
    twin: Callable[[], Tensor] = healthy

    @property
    def is_defect(self) -> bool:
        return self.level in ("severe", "warning")


FINE, RANDOM = "No defect was found in these rows.", "The rows look random."
DRIFT, WAY, TAIL = "common_direction_drift", "rows share a common direction", "ids 7,000 to 7,999"
SCORES = "Two random rows of the collection score 0.38, and 1 in 100 pairs reaches 0.61: read scores as percentiles"
NEAR, FEW = f"Cosine of {TAIL} to reserved rows", "a few rogue dimensions decide its similarities"
ALL = "as a share of all"
NO_DEFECT, VECTORS = ("healthy", "no_defect"), {"is_model": False, "twin": sentences}
CASES = [
    Case("healthy", healthy, *NO_DEFECT, "shows no defect (mean cosine 0.00,"),
    Case("random", random_table, "structure", "untrained", "looks untrained"),
    Case("drift", drifted, "severe", DRIFT, f"{WAY} (mean cosine 0.54)", of_head="healthy"),
    Case("tail", rare_tail, "warning", "degenerate_tail", f"but its tail is degenerate ({TAIL}", NEAR),
    Case("giant rows", giant, "warning", "giant_rows", "2 of its rows are far longer than usual", f"Giant rows, {ALL}"),
    Case("zero rows", zero_rows, "warning", "zero_rows", "40 of its rows are zero", f"Zero rows, {ALL}"),
    Case(
        "equal rows", equal_rows, "warning", "equal_rows", "200 of its rows are equal to others", f"Equal rows, {ALL}"
    ),
    Case(
        "rank loss", low_rank, "severe", "low_effective_rank", "its rows fill 8.39 of 64 dimensions", "Effective rank"
    ),
    Case("rogue feature", rogue, "warning", "rogue_dimensions", FEW, "Dominant dimension"),
    Case("capped head", drifted, "severe", DRIFT, WAY, cap=30.0),
    Case("untied", healthy, *NO_DEFECT, "shows no defect", head=partial(drifted, 3)),
    Case(
        "faulty head",
        healthy,
        *NO_DEFECT,
        "The output head is severely degenerate",
        head=partial(low_rank, 3),
        of_head="severe",
    ),
    Case("tiny vocabulary", lambda: tiny(0), *NO_DEFECT, "shows no defect", twin=tiny),
    Case(
        "tiny, drifted",
        lambda: tiny(0) + 0.2,
        "severe",
        DRIFT,
        "rows share a common direction",
        of_head="healthy",
        twin=tiny,
    ),
    Case("sentence vectors", sentences, *NO_DEFECT, "The collection shows no defect", **VECTORS),
    Case("drifted vectors", lambda: sentences() + 0.1, "warning", DRIFT, SCORES, **VECTORS),
]
BY_NAME = {case.name: case for case in CASES}


def write(case: Case, folder: Path, table: Tensor, head: Tensor | None = None) -> str:
    """The case as a user has it: a model directory, or a file of vectors."""
    if not case.is_model:
        np.save(folder / "vectors.npy", table.numpy())
        return "vectors.npy"
    reserved = min(200, len(table) // 11)
    tokens = [f"[unused{i}]" if i < reserved else f"token{i}" for i in range(len(table))]
    pieces = "".join(dict.fromkeys("token0123456789[]used"))
    tokens[len(tokens) // 2 : len(tokens) // 2 + len(pieces)] = pieces
    model = write_model(folder / "model", table, head, tokens=tokens)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    Tokenizer(models.BPE(vocab=vocabulary, merges=[])).save(str(model / "tokenizer.json"))
    if case.cap is not None:
        config = json.loads((model / "config.json").read_text()) | {"final_logit_softcapping": case.cap}
        (model / "config.json").write_text(json.dumps(config))
    return "model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cases")


@cache
def diagnosed(name: str, folder: Path) -> Diagnosis:
    """Diagnosed from the folder that holds it, as a user would."""
    case = BY_NAME[name]
    return _diagnosed(case, folder / name.replace(" ", "_").replace(",", ""), case.make(), case.head and case.head())


@cache
def twin_of(make: Callable[[], Tensor], cap: float | None, is_model: bool, folder: Path) -> Diagnosis:
    case = Case("", make, "", "", "", cap=cap, is_model=is_model)
    return _diagnosed(case, folder / f"{make.__name__}_{cap}_twin", make(), None)


def _diagnosed(case: Case, place: Path, table: Tensor, head: Tensor | None) -> Diagnosis:
    place.mkdir()
    with contextlib.chdir(place):
        return uncone.diagnose(write(case, place, table, head))


@cache
def without_pictures(name: str, folder: Path) -> Diagnosis:
    """What takes long to draw and to load says nothing of a level."""
    d = diagnosed(name, folder)
    return replace(d, subjects=tuple(replace(subject, picture=None) for subject in d.subjects))


def terminal(d: Diagnosis) -> str:
    console = Console(file=io.StringIO(), width=1000, color_system=None)
    uncone.report.print_record(d, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def worst(subject: Subject) -> Finding:
    return subject.findings[0]


def level_of(d: Diagnosis) -> Level:
    return min((worst(s).level for s in d.subjects), key=list(LABELS).index)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
class TestAllSayTheSame:
    def test_verdict_and_findings(self, case: Case, folder: Path) -> None:
        d = diagnosed(case.name, folder)
        first, *others = d.subjects
        assert (worst(first).cause, worst(first).level) == (case.cause, case.level)
        assert [f.cause for f in first.findings if f.is_defect] == [case.cause] * case.is_defect
        assert case.verdict in d.verdict
        for head in others:
            assert worst(head).level == (case.of_head or case.level), head.findings
            without_effect = any(f.level == "no_effect" for f in head.findings)
            assert without_effect == (not case.cap and ("drift" in case.name or case.name in ("drift", "untied")))
        words = ("degenerate", "has a defect", "read scores as percentiles")
        assert any(one in d.verdict for one in words) == _is_defective(d)

    def test_badge_and_page(self, case: Case, folder: Path) -> None:
        d = without_pictures(case.name, folder)
        level, heading = level_of(d), d.blocks()[0]
        assert isinstance(heading, Heading)
        assert (heading.text, heading.label, heading.tone) == (d.verdict, LABELS[level], level)
        badges = re.findall(r'class="badge (\w+)"[^>]*>([^<]+)<', uncone.report.to_html(d))
        shown = [level, *(f.level for s in d.subjects for f in s.findings)]
        assert sorted(tone for tone, _ in badges) == sorted(shown)
        assert ("severe" in {tone for tone, _ in badges}) == (level == "severe")

    def test_tiles(self, case: Case, folder: Path) -> None:
        first, *others = diagnosed(case.name, folder).subjects[0].gauges().gauges
        assert first.label == case.tile
        assert first.tone == (case.level if case.is_defect else "")
        assert {gauge.tone for gauge in others} <= {"", "structure", *[case.level] * case.is_defect}

    def test_captions(self, case: Case, folder: Path) -> None:
        for subject in diagnosed(case.name, folder).subjects:
            said = next(b.caption for b in subject.blocks() if isinstance(b, Figure) and b.title == "The picture")
            defects = [f.cause.replace("_", " ") for f in subject.findings if f.is_defect]
            assert said.startswith("Found in these rows: " if defects else RANDOM if case.name == "random" else FINE)
            assert all(cause in said for cause in defects)
            assert ("changes no probability" in said) == any(f.level == "no_effect" for f in subject.findings)

    def test_terminal(self, case: Case, folder: Path) -> None:
        d = without_pictures(case.name, folder)
        text = terminal(d)
        level = level_of(d)
        assert text.startswith(f"{LABELS[level]}  {d.verdict}")
        for word in ("SEVERE", "WARNING"):
            times = [f.level for s in d.subjects for f in s.findings].count(word.lower())
            assert text.count(word) == times + (level == word.lower())

    def test_comparison_and_check(self, case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        d, twin = diagnosed(case.name, folder), twin_of(case.twin, case.cap, case.is_model, folder)
        is_defective = _is_defective(d)
        found = uncone.compare([twin, d], names=["twin", "case"])
        assert found.worse == is_defective
        assert ("case is worse than twin: " in found.verdict) == is_defective
        assert "better" not in found.verdict.replace("neither worse nor better", "")
        back = uncone.compare([d, twin], names=["case", "twin"])
        assert not back.worse
        assert ("twin is better than case: " in back.verdict) == is_defective
        assert back.verdict.startswith("case looks untrained, so the changes are what training did. ") == (
            case.name == "random"
        )
        (folder / "d.json").write_text(without_pictures(case.name, folder).to_json())
        for fail_on, levels in (("warning", ("warning", "severe")), ("severe", ("severe",))):
            fails = any(f.level in levels for s in d.subjects for f in s.findings)
            status, out, _ = run_command("check", capsys, str(folder / "d.json"), "--fail-on", fail_on)
            assert status == (2 if fails else 0)
            assert out.startswith("FAILED" if fails else "OK")


def _is_defective(d: Diagnosis) -> bool:
    return any(finding.is_defect for subject in d.subjects for finding in subject.findings)


@pytest.mark.slow
def test_vectors_of_sentences_by_minilm(minilm: Path) -> None:
    """400 sentences spread over WikiText-2 by a real encoder: no defect, and no noise either."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    source = (Path(__file__).parent / "../../shared/data/lm/wikitext-2/train.txt.xz").resolve()
    if not source.exists():
        pytest.skip("the text of WikiText-2 is not there")
    parts = re.split(r" \. |\n", lzma.decompress(source.read_bytes()).decode())
    texts = [text.strip() for text in parts if 40 < len(text.strip()) < 200]
    model = sentence_transformers.SentenceTransformer(str(minilm))
    d = uncone.diagnose(model.encode(texts[:: len(texts) // 400][:400]))
    assert d.verdict.startswith("The collection shows no defect (mean cosine 0.04, effective rank 25")
    assert [f.cause for f in d.subjects[0].findings] == ["no_defect"]
    assert not uncone.compare([d, d]).worse
    assert uncone.check(d, fail_on="warning").ok


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_advice_is_run_as_it_is_pasted(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [f for s in diagnosed(case.name, folder).subjects for f in s.findings]
    assert all(bool(f.repair) == (f.is_defect or f.level == "no_effect") for f in findings if f.level != "note")
    if case.is_model:
        assert not re.search("quer|document|search", " ".join(f.repair for f in findings).replace("docs/", ""))
    # centring a head runs the model, and these have no layers
    commands = dict.fromkeys(f.command for f in findings if f.command and f.level != "no_effect")
    if commands:
        write(case, tmp_path, case.make(), case.head and case.head())
    monkeypatch.chdir(tmp_path)
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "uncone"
        before = set(tmp_path.iterdir())
        status, _, err = run_command(arguments[0], capsys, *arguments[1:])
        assert (status, err) == (0, ""), command
        written = {path.name for path in set(tmp_path.iterdir()) - before}
        ends = ("model-repaired", "model-filled") if case.is_model else (".npy", ".safetensors")
        assert written == {a for a in arguments if a.endswith(ends)} - {"vectors.npy"}
        for name in written:
            assert not name.endswith(".npy") or np.load(name).shape == case.make().shape


COMMANDS = {
    "drift": "",
    "drifted vectors": "uncone calibrate vectors.npy",
    "zero rows": "uncone repair-tokens model model-filled --tokens zero --method covariance",
    "tail": "uncone repair-tokens model model-repaired",
} | dict.fromkeys(("giant rows", "equal rows", "rank loss", "rogue feature", "healthy", "random"), "")


@pytest.mark.parametrize(("name", "command"), COMMANDS.items())
def test_the_command_of_each_case(name: str, command: str, folder: Path) -> None:
    assert worst(diagnosed(name, folder).subjects[0]).command == command


@pytest.mark.parametrize(("name", "untie"), [("drift", " --untie"), ("untied", "")])
def test_the_advice_on_a_models_table_is_about_the_model(name: str, untie: str, folder: Path) -> None:
    """Never about a file of its rows; a head's common direction can be taken out of the model."""
    (table, head) = diagnosed(name, folder).subjects
    assert all(".npy" not in f.command and "#" not in f.command for s in (table, head) for f in s.findings)
    (shared,) = [f for f in head.findings if f.level == "no_effect"]
    assert shared.command == f"uncone center-head model model-centred{untie}"
    if name == "drift":
        assert "docs/prevention.md" in worst(table).repair


@pytest.mark.parametrize("is_tied", [True, False])
def test_centring_a_head_is_run_as_it_is_pasted(
    is_tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    saved(tmp_path / "m", "LlamaForCausalLM", size=1.0, tie_word_embeddings=is_tied)
    monkeypatch.chdir(tmp_path)
    (command,) = [f.command for f in uncone.diagnose("m#head").subjects[0].findings if f.level == "no_effect"]
    assert ("--untie" in command) == is_tied
    status, _, err = run_command(*shlex.split(command)[1:2], capsys, *shlex.split(command)[2:])
    assert status == 0, err
    after = uncone.compare(["m", "m-centred"])
    assert not after.worse, after.verdict
    assert "no_effect" not in {f.level for f in uncone.diagnose("m-centred#head").subjects[0].findings}


def one_direction() -> Tensor:
    """A direction that is no feature and not the mean has a half of the variance."""
    along = torch.nn.functional.normalize(torch.ones(1, D), dim=1)
    return healthy()[:2000] + 8 * gaussian(2000, 1, seed=3) / D**0.5 @ along


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda: sentences() + 0.1, "common_direction_drift"),
        (low_rank, "low_effective_rank"),
        (rogue, "rogue_dimensions"),
        (one_direction, "dominant_direction"),
    ],
)
def test_advice_in_python_is_run(make: Callable[[], Tensor], cause: str) -> None:
    space = {"uncone": uncone, "x": make().numpy()}
    finding = worst(uncone.diagnose(space["x"]).subjects[0])
    assert finding.cause == cause
    exec(finding.command, space)
    if cause == DRIFT:  # the score that is named is that of the calibration
        (subject,) = uncone.diagnose(space["x"]).subjects
        assert subject.scores
        assert space["calibration"].threshold(0.01) == pytest.approx(subject.scores.reached, abs=0.001)
        return
    assert space["repaired"].shape == space["x"].shape
    after = uncone.diagnose(space["repaired"]).subjects[0]
    left = [f.extent for f in after.findings if f.cause == cause and f.is_defect]
    assert all(extent is not None and extent < (finding.extent or 0) for extent in left)


RUN = ["$(touch x)", "`touch x`", "a;touch x"]
HOSTILE = ["two words", "it's", 'a"b', *RUN, "a&b", "*", "a#b", "-x", "back\\slash", "ü"]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_paths_are_quoted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell gives back the path, and runs nothing else."""
    monkeypatch.chdir(tmp_path)
    np.save(f"./{name}.npy", drifted().numpy()[:600])
    command = worst(uncone.diagnose(f"{name}.npy").subjects[0]).command
    program, verb, path, *_ = shlex.split(command)
    assert (program, verb) == ("uncone", "calibrate")
    assert Path(path) == Path(f"{name}.npy")
    printed = subprocess.run(["sh", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True)
    assert printed.stdout.splitlines() == shlex.split(command)
    assert {p.name for p in tmp_path.iterdir()} == {f"{name}.npy"}


@pytest.mark.parametrize("name", ["two words", "a#b", "$(touch x)"])
def test_hostile_model_paths_are_quoted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(Path(name), drifted()[:600])
    for spec in (name, f"{name}#head"):
        (command,) = [f.command for f in uncone.diagnose(spec).subjects[-1].findings if f.level == "no_effect"]
        assert shlex.split(command)[1:] == ["center-head", name, f"{name}-centred", "--untie"]
    assert advice_for(f"{name}#head", "head", editable=True).model == shlex.quote(name)


@pytest.mark.parametrize("name", ["new\nline", "esc\x1b[31m", "\u202egnp"], ids=ascii)
def test_paths_that_are_not_what_they_look_like_are_left_out(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / f"{name}.npy", drifted().numpy()[:600])
    finding = worst(uncone.diagnose(str(tmp_path / f"{name}.npy")).subjects[0])
    assert (finding.cause, finding.command, bool(finding.repair)) == (DRIFT, "", True)


def test_a_report_that_is_passed_on_tells_no_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the working directory on a path is told; of one elsewhere its end. The terminal has the whole."""
    path, saved = tmp_path / "x.npy", tmp_path / "d.json"
    np.save(path, drifted().numpy()[:600])
    d = uncone.diagnose(str(path))
    assert worst(d.subjects[0]).command == f"uncone calibrate {tmp_path.name}/x.npy"
    assert str(tmp_path) not in d.to_json()
    _, out, _ = run_command("diagnose", capsys, path, "--json", saved)
    assert f"uncone calibrate {path}" in out
    assert str(tmp_path) not in saved.read_text()
    monkeypatch.chdir(tmp_path)
    for spec in (str(path), path, "x.npy"):
        command = worst(uncone.diagnose(spec).subjects[0]).command
        assert command == "uncone calibrate x.npy"


def test_other_tensors_of_a_model_have_no_advice(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", drifted()[:600])
    assert advice_for(str(model / "model.safetensors"), "rows", editable=False).kind == "vectors"
    other = advice_for(f"{model}#gpt_neox.position", "rows", editable=True)
    assert (other.kind, other.is_of_tokens) == ("tensor", False)
    assert other.on(Finding("common_direction_drift", "warning", "s")).repair == ""
    assert Advice().on(Finding("common_direction_drift", "structure", "s")).repair == ""
