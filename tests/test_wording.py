"""One of a thing is singular wherever it is counted, and no share is rounded onto a limit it did not reach."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uncone
from tests.command import load_script
from tests.report.printed import printed
from tests.report.records_example import make_diagnosis
from uncone.model.counts import as_counts
from uncone.records.parts import Finding
from uncone.records.text import counted, cut_label, listing, percent, plural
from uncone.records.tokens import UnderTrained
from uncone.report import to_html


@given(st.floats(-2, 3, allow_nan=False))
def test_a_share_is_rounded_and_reaches_no_limit(share: float) -> None:
    shown = percent(share)
    if shown[0] in "<>":
        limit = float(shown[1:-1]) / 100
        assert share < limit if shown[0] == "<" else share > limit
        assert abs(share - limit) <= 1.1e-5
    else:
        assert float(shown[:-1]) / 100 == pytest.approx(share, abs=0.005001)
        assert (float(shown[:-1]) in (0, 100)) == (share in (0, 1))


def test_shares_in_percent() -> None:
    shown = {0.0: "0%", 1.0: "100%", 1.0000001: ">100%", 1.004: "100.4%", 0.99999: "99.999%", -1e-9: "<0%"}
    shown |= {0.587: "59%", 0.9966: "99.7%", 0.99999999: ">99.999%", 0.0004: "0.04%"}
    assert {share: percent(share) for share in shown} == shown
    assert percent(0.0103, precise=True) == "1.03%"


def test_words_counted_cut_and_listed() -> None:
    assert [counted(n, "row") for n in (0, 1, 2, 30522)] == ["0 rows", "1 row", "2 rows", "30,522 rows"]
    assert (cut_label("word"), len(cut_label("a" * 1_000_000) or ""), cut_label(None)) == ("word", 200, None)
    assert (listing(["one"]), listing(["one", "two", "three"])) == ("one", "one, two and three")
    assert (plural(1, "row is", "rows are"), plural(0, "token")) == ("row is", "tokens")


def test_a_rogue_dimension_is_not_said_to_carry_all() -> None:
    x = torch.randn(400, 40, generator=torch.Generator().manual_seed(0))
    x[:, 3] += 40
    (finding,) = [f for f in uncone.diagnose(x.numpy()).subjects[0].findings if f.cause == "rogue_dimensions"]
    assert "carries 99.9" in finding.evidence[0]
    assert "100%" not in " ".join(finding.evidence)


def test_one_row_in_reports() -> None:
    found = UnderTrained(1, definition="norm", rate=0.01, tested=200, reference="rows", known=1, known_found=1)
    subject = replace(make_diagnosis().subjects[0], n=1, d=1, left_out=1, under_trained=found)
    d = replace(make_diagnosis(), subjects=(subject,))
    text = printed(d, 200) + to_html(d)
    assert text.count("1 row x 1 column,") == 2
    assert text.count("1 row that is not finite was left out") == 2
    assert "1 of 200 rows looks untrained" in text
    assert text.count("Of 1 row known to be unused, 1 looks untrained too.") == 2
    assert " 1 rows" not in text


def test_one_row_in_findings_and_errors() -> None:
    d = uncone.diagnose(torch.ones(1, 4).numpy())
    (finding,) = d.subjects[0].findings
    few = ("1 row, but at least 30 are needed to judge",)
    assert finding == Finding("not_measured", "note", finding.summary, few, "Pass more rows.")
    assert "could not be judged: 1 row is not enough" in d.verdict
    assert "1 rows" not in d.to_json()
    assert "the last 1 id" not in d.to_json()
    with pytest.raises(uncone.InputError, match=r"the same 2 rows, got moments of 1 row of weight"):
        uncone.measure.under_trained_tokens(torch.ones(2, 3), uncone.Moments.of(torch.ones(1, 3)))


def test_one_line_of_counts(tmp_path: Path) -> None:
    table = tmp_path / "c.tsv"
    table.write_text("id\ttoken\tcount\n0\tx\t5\n")
    with pytest.raises(uncone.InputError, match=r"got 'x' for id 0 in line 2 of c.tsv, which is 'a': count with"):
        as_counts(str(table), 2, ["a", "b"])
    with pytest.raises(uncone.InputError, match=r"got 'x' for id 0 in line 2 of c.tsv, which has no token: count with"):
        as_counts(str(table), 2, [None, "b"])
    table.write_text("token\tcount\na\t5\n")
    assert as_counts(str(table), 2, ["a", "b"]).notes == ("1 row is not named in c.tsv: its count is taken as 0.",)


BETRAYED = (
    r"\b(told|anew|at hand|sure turn|held against|one a line|as published|tells of|tells them apart|beyond little)\b"
)


def test_no_text_has_a_word_that_sounds_translated() -> None:
    script = load_script(Path(__file__).parents[1] / "docs/texts.py")
    files = sorted((script.ROOT / "src").rglob("*.py"))
    every = [(path.name, line, text) for path in files for line, text in script.texts(path)]
    assert len(every) > 3000
    assert [one for one in every if re.search(BETRAYED, one[2])] == []


def test_a_text_is_listed_with_what_a_program_fills_in(tmp_path: Path) -> None:
    code = '''"""A docstring is none."""\nraise Error(f"expected {n} rows, got {m}: pass " "more")\nx = "name"\n'''
    (tmp_path / "a.py").write_text(code, encoding="utf-8")
    texts = load_script(Path(__file__).parents[1] / "docs/texts.py").texts
    assert list(texts(tmp_path / "a.py")) == [(2, "expected {} rows, got {}: pass more")]
