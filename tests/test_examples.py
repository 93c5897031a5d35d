"""The examples run, and say what they are there to say."""

import lzma
import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.command import load_script

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "train_with_gate.py"
DATA = (ROOT / "../shared/data/lm/wikitext-2").resolve()
GROUPS = ("rare", "medium", "frequent")
TINY = ["--steps", "4", "--batch", "2", "--vocab", "280", "--width", "16", "--layers", "1"]


@pytest.fixture
def main() -> Iterator[Callable[[list[str]], None]]:
    """The example's, which sets torch's number of threads."""
    threads = torch.get_num_threads()
    yield load_script(EXAMPLE).main
    torch.set_num_threads(threads)


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """Texts of made-up words, few of them common."""
    dice = random.Random(0)
    words = ["".join(dice.choices("abcdefghij", k=dice.randint(2, 6))) for _ in range(400)]
    odds = [1 / (i + 1) for i in range(len(words))]
    for name, lines in (("train", 400), ("valid", 40), ("test", 40)):
        text = "\n".join(" ".join(dice.choices(words, odds, k=12)) + " ." for _ in range(lines))
        (tmp_path / f"{name}.txt.xz").write_bytes(lzma.compress(text.encode()))
    return tmp_path


def table(printed: str) -> dict[str, list[float]]:
    rows = re.findall(r"^(\S.+?)  +([-\d.,]+(?: +[-\d.,]+)+)$", printed, re.MULTILINE)
    return {name: [float(cell.replace(",", "")) for cell in cells.split()] for name, cells in rows}


def check(printed: str, runs: int) -> dict[str, list[float]]:
    """The verdict repeats the table, and the perplexities of the groups make that of all."""
    found = table(printed)
    assert [len(cells) for cells in found.values()] == [runs] * 8
    rare, everything = found["perplexity, rare"], found["perplexity, all"]
    assert f"rare targets from {rare[0]:.1f} to {rare[1]:.1f}" in printed
    assert f"all targets from {everything[0]:.1f} to {everything[1]:.1f}" in printed
    targets = {name: int(n.replace(",", "")) for name, n in re.findall(r"(\w+) [\d,]+ ids, ([\d,]+) targets", printed)}
    assert tuple(targets) == GROUPS
    for i in range(runs):
        nats = sum(n * math.log(found[f"perplexity, {name}"][i]) for name, n in targets.items()) / sum(targets.values())
        assert math.exp(nats) == pytest.approx(everything[i], rel=2e-3)
        assert 0 < found["isotropy I(W), centred"][i] <= 1
        assert -1 <= found["mean cosine, raw"][i] <= 1
        assert found["tokens a second of one core"][i] > 0
    assert printed.count("The gate of the run") == runs - 1
    assert len(re.findall(r"held back in the last step: \d+\.\d+% of the gradient", printed)) == runs - 1
    return found


@pytest.mark.filterwarnings("ignore:.*rare ids are:UserWarning")
def test_it_prints_all(main: Callable[[list[str]], None], made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--data", str(made_up), *TINY, "--modes", "relative", "hard"])
    printed = capsys.readouterr().out
    assert "step 4 of 4" in printed
    plain, *gated = zip(*check(printed, 3).values(), strict=True)
    assert all(other[:-1] != plain[:-1] for other in gated), "the gate acted"


def test_a_missing_text_is_named(main: Callable[[list[str]], None], made_up: Path) -> None:
    (made_up / "valid.txt.xz").unlink()
    with pytest.raises(SystemExit, match=r"expected train.txt.xz, .* in .*, got no valid.txt.xz: give --data FOLDER"):
        main(["--data", str(made_up)])


@pytest.fixture
def wikitext(tmp_path: Path) -> Path:
    """The first lines of WikiText-2."""
    if not DATA.exists():
        pytest.skip("the text of WikiText-2 is not there")
    for name, lines in (("train", 6_000), ("valid", 100), ("test", 1200)):
        text = lzma.decompress((DATA / f"{name}.txt.xz").read_bytes()).decode().splitlines()[:lines]
        (tmp_path / f"{name}.txt.xz").write_bytes(lzma.compress("\n".join(text).encode(), preset=0))
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*rare ids are:UserWarning")
def test_a_gate_on_text(main: Callable[[list[str]], None], wikitext: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--data", str(wikitext), "--vocab", "2048", "--steps", "40"])
    found = check(capsys.readouterr().out, 2)
    assert all(p < 1000 for p in found["perplexity, all"])
    plain, gated = found["mean cosine of rare rows, raw"]
    assert gated < plain


ARM_OF = {
    '`"column"`': "second moment a column",
    '`"factored"`': "factored second moment",
    "AMSGrad": "AMSGrad",
    "SGD with momentum": "SGD with momentum on tables",
    "[the gate]": "AGG",
    "[`CosinePenalty`]": "CosReg",
    "[`CenterRows`]": "CenterRows",
    "rare rows frozen": "rare rows frozen",
    "`OrthogonalPenalty`": "orthogonality penalty",
    "`IsoScorePenalty`": "IsoScore penalty",
}
"""Words of rows of docs/prevention.md, and the arm of the bench that has their figures."""


def rows_of(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]


def test_what_prevention_says_of_the_remedies_is_what_was_kept() -> None:
    core = (ROOT / "experiments/rare_tokens/results/core.md").read_text(encoding="utf-8").split("\n## ")
    heads, _, *lines = rows_of(core[1])
    kept = {line[0]: dict(zip(heads, line, strict=False)) for line in lines}
    bars = {line[0]: line for line in rows_of(next(part for part in core if part.startswith("Against the bars")))}
    page = (ROOT / "docs/prevention.md").read_text(encoding="utf-8").partition("## Which number")[0]
    readme = (ROOT / "experiments/translation/README.md").read_text(encoding="utf-8")
    said = rows_of(page)

    def loss(arm: str) -> str:
        return kept[arm]["less plain"].split("; would see")[0].split(" (")[0]

    for words, arm in ARM_OF.items():
        (row,) = (row for row in said if words in row[0])
        assert row[1].startswith(loss(arm)), (words, row[1], loss(arm))
        interval = re.search(r"\((.* to .*);", kept[arm]["less plain"])
        assert interval is None or interval[1] in row[1], words
    for words in ('`"column"`', '`"factored"`', "AMSGrad", "SGD with momentum"):
        (row,) = (row for row in said if words in row[0])
        assert row[2:4] == [kept[ARM_OF[words]][head] for head in ("rare", "cosine")], words
    (gate,) = (row for row in said if "[the gate]" in row[0])
    assert kept["AGG"]["rare"] in gate[2]
    assert kept["AGG"]["rare with a bias"] in gate[2]
    assert kept["AGG, beta2 .999"]["rare"] in gate[2]
    for words in ("`OrthogonalPenalty`", "`IsoScorePenalty`"):
        (row,) = (row for row in said if words in row[0])
        assert kept[ARM_OF[words]]["rare"] in row[2], words
        assert f"{float(kept[ARM_OF[words]]['cosine']):.2f}" in row[2], words
    default, arm = page.partition("**Where it does not help")[0], "AdamW, beta2 .999"
    assert loss(arm) in default
    for number in re.findall(r"[-+]?\d+[\d.]*%?", " ".join(bars[arm][2:]).split("; would")[0]):
        assert number.rstrip("0") in default or f"{float(number):.1f}" in default, number
    for name in ("v16k-d128", "v16k-d256"):
        table = (ROOT / f"experiments/rare_tokens/results/{name}.md").read_text(encoding="utf-8")
        (row,) = (row for row in rows_of(table) if row[0] == arm and len(row) > 9)
        assert row[4].split(" (")[0] in default, name
    table = (ROOT / "experiments/translation/results/multi30k.md").read_text(encoding="utf-8")
    heads, _, *lines = rows_of(table.partition("## Every cell")[0])
    elsewhere = page.partition("**Where it does not help")[2]
    for line in lines:
        found = dict(zip(heads, line, strict=True))
        if found["arm"] != "AdamW, beta2 .98 (MLE)":
            assert found["BLEU less MLE"].split("; would")[0] in elsewhere, found["arm"]
            assert found["arm"] != "AGG" or found["rare perplexity"] in readme


def test_all_remedies_are_trained_and_shown(
    made_up: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    threads = torch.get_num_threads()
    remedies = load_script(ROOT / "examples/remedies.py")
    remedies.main(["--data", str(made_up), *TINY])
    torch.set_num_threads(threads)
    _, _, *rows = (line for line in capsys.readouterr().out.splitlines() if line.startswith("|"))
    cells = {row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]] for row in rows}
    assert [*cells] == [arm.name for arm in remedies.ARMS]
    assert cells["CenterRows"][0] == cells["plain"][0], "predictions are the same"
    assert float(cells["CenterRows"][2]) < float(cells["plain"][2])
    assert all(float(cell) > 0 for row in cells.values() for cell in [row[0], row[1], *row[3:6]])
