"""Planted faults are named, healthy twins are left alone, and the record holds what the pages need."""

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import uncone
from uncone import Diagnosis, InputError, Moments, measure
from uncone.diagnosis.record import LEVELS
from uncone.records.tokens import UnderTrained, UnderTrainedToken
from uncone.rows import GRID

from ..matrices import gaussian, promised
from ..planted import FAULTS, D, V, drifted, healthy, random_table, rare_tail, write_model
from ..rows.reading import refuses


def _causes(subject: uncone.Subject, *levels: str) -> list[str]:
    return [f.cause for f in subject.findings if f.level in (levels or ("warning", "severe"))]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_planted_fault_is_named_and_nothing_else(tmp_path: Path, fault: str, seed: int) -> None:
    d = uncone.diagnose(write_model(tmp_path / "m", FAULTS[fault](seed)))
    subject = d.subjects[0]
    is_structure = fault == "norm_id_coupling"  # what trained tables have: said, and no defect
    assert _causes(subject) == ([] if is_structure else [fault]), subject.findings
    (finding,) = (f for f in subject.findings if f.cause == fault)
    assert finding.evidence
    assert bool(finding.repair) is not is_structure
    assert ("no defect" in d.verdict.partition(". ")[0]) == (is_structure or fault == "degenerate_tail")


@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_twin_is_left_alone(tmp_path: Path, seed: int) -> None:
    d = uncone.diagnose(write_model(tmp_path / "m", healthy(seed)))
    for subject in d.subjects:
        assert _causes(subject) == []
        assert [f.cause for f in subject.findings] == ["no_defect"]
    assert d.verdict.startswith("The input token table shows no defect (mean cosine 0.00, effective rank 63 of 64). ")


@pytest.mark.parametrize("seed", range(4))
def test_a_random_table_is_called_untrained(tmp_path: Path, seed: int) -> None:
    d = uncone.diagnose(write_model(tmp_path / "m", random_table(seed)))
    for subject in d.subjects:
        assert [(f.cause, f.level) for f in subject.findings] == [("untrained", "structure")]
    assert d.verdict == "The input token table looks untrained. The output head looks untrained."
    assert uncone.diagnose(random_table(seed)).verdict == "The collection looks like noise."


def test_a_tail_behind_a_healthy_headline_is_said(tmp_path: Path) -> None:
    d = uncone.diagnose(write_model(tmp_path / "m", rare_tail()))
    assert "the 1,000 rows of ids 7,000 to 7,999" in d.subjects[0].findings[0].summary


def test_a_tail_without_reserved_tokens_is_found_in_the_last_ids(tmp_path: Path) -> None:
    x = healthy()
    x[-1000:] = 0.3 * x[-1000:] + 0.6 * torch.nn.functional.normalize(gaussian(1, D, seed=98), dim=1)
    subject = uncone.diagnose(write_model(tmp_path / "m", x, tokens=[f"token{i}" for i in range(len(x))])).subjects[0]
    assert not subject.groups.reserved_by_name
    assert _causes(subject) == ["degenerate_tail"]
    assert "leaning_rows" in _causes(uncone.diagnose(x).subjects[0], "note")  # of vectors: they may be of one topic
    assert "never" not in subject.findings[0].summary  # nobody knows that these rows were not trained


def test_reserved_rows_alone_are_a_note(tmp_path: Path) -> None:
    x = healthy()
    x[:200] = x[0]
    d = uncone.diagnose(write_model(tmp_path / "m", x))
    assert _causes(d.subjects[0]) == []
    assert _causes(d.subjects[0], "note") == ["degenerate_tail"]


class TestHead:
    """A vector added to all rows of a head changes no probability: it must change no finding either."""

    def test_findings_come_from_the_centred_matrix(self, tmp_path: Path) -> None:
        head = drifted(3)
        table, output = uncone.diagnose(write_model(tmp_path / "m", healthy(), head)).subjects
        assert (table.name, output.name, _causes(output)) == ("input", "head", [])
        (raw,) = (m.value for m in output.without_effect if m.name == "mean_cosine")
        assert raw == pytest.approx(float(measure.mean_cosine(Moments.of(head))))
        assert abs(float(output.measurement("mean_cosine"))) < 0.01
        assert all(m.centered for m in output.measurements)
        assert table.without_effect == ()

    @pytest.mark.parametrize("fault", ["rogue_dimensions", "low_effective_rank", "norm_id_coupling", "degenerate_tail"])
    def test_the_gauge_changes_nothing(self, tmp_path: Path, fault: str) -> None:
        head = FAULTS[fault](0)
        moved = head + 3 * gaussian(1, D, seed=5)
        first = uncone.diagnose(write_model(tmp_path / "a", healthy(), head)).subjects[1]
        second = uncone.diagnose(write_model(tmp_path / "b", healthy(), moved)).subjects[1]
        assert fault in _causes(first, "structure" if fault == "norm_id_coupling" else "warning", "severe")
        told = [[(f.cause, f.level) for f in one.findings if f.level != "no_effect"] for one in (first, second)]
        assert told[0] == told[1]
        assert "common_direction_of_the_head" in _causes(second, "no_effect")
        for a, b in zip(first.measurements, second.measurements, strict=True):
            if a.value is not None and a.name != "mean_cosine":
                slack = max(promised(a), promised(b)) if a.name == "condition_number" else 1e-3
                assert slack <= 0.1
                assert b.value == pytest.approx(a.value, rel=slack, abs=1e-5), a.name
        numbers = [float(uncone.measure.condition_number(one.double(), centered=True)) for one in (head, moved)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-6)  # float64 has the digits

    def test_a_tied_head_is_the_table_with_its_mean_removed(self, tmp_path: Path) -> None:
        d = uncone.diagnose(write_model(tmp_path / "m", drifted()))
        assert {s.name: _causes(s) for s in d.subjects} == {"input": ["common_direction_drift"], "head": []}
        assert any("tied" in note for note in d.notes)

    def test_a_tied_matrix_reads_as_the_same_numbers_untied(self, tmp_path: Path) -> None:
        """The head takes the table's sums of the rows as stored."""
        table = drifted()
        table[300], table[301], table[400] = 0.0, table[5], 40 * table[400]  # zero, equal and giant rows
        tied, apart = (
            uncone.diagnose(write_model(tmp_path / name, table, head))
            for name, head in (("a", None), ("b", table.clone()))
        )
        for one, other in zip(tied.subjects, apart.subjects, strict=True):
            numbers = [{m.name: m.value for m in side.measurements if m.value is not None} for side in (one, other)]
            assert numbers[0] == pytest.approx(numbers[1], rel=1e-12, abs=1e-12)
            assert (one.odd_rows, one.norms) == (other.odd_rows, other.norms)
        assert tied.subjects[1].groups == apart.subjects[1].groups
        told = [[(f.cause, f.level, f.evidence) for f in of.subjects[1].findings] for of in (tied, apart)]
        assert told[0] == told[1]

    @pytest.mark.parametrize(
        ("settings", "cap"),
        [
            ({"final_logit_softcapping": 30.0}, 30.0),
            ({"logits_soft_cap": 15}, 15.0),
            ({"output_logit_soft_cap": 5}, 5.0),
            ({"text_config": {"final_logit_softcapping": 30}}, 30.0),
            ({"logits_soft_cap": None}, None),
            ({"final_logit_softcapping": 0}, None),
            ({"final_logit_softcapping": -1}, None),
            ({"logits_soft_cap": 1e7}, None),
            ({"final_logit_softcapping": "30"}, None),
            ({"final_logit_softcapping": True}, None),
            ({}, None),
        ],
    )
    def test_a_head_whose_logits_are_capped_is_read_as_stored(
        self, tmp_path: Path, settings: dict[str, object], cap: float | None
    ) -> None:
        """A vector added to all rows moves capped logits by different amounts: it has an effect."""
        head = drifted(3)[:600]
        folder = write_model(tmp_path / "m", healthy()[:600], head)
        (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | settings))
        said = f"The model caps its logits at {cap:g}. Its head is read as stored" if cap else ""
        for spec in (str(folder), f"{folder}#head"):
            d = uncone.diagnose(spec)
            output = d.subjects[-1]
            assert _causes(output) == (["common_direction_drift"] if cap else [])
            assert bool(output.without_effect) == (cap is None)
            assert any(note.startswith(said) for note in d.notes) if cap else not any("caps" in n for n in d.notes)
        raw = float(measure.mean_cosine(Moments.of(head)))
        assert float(output.measurement("mean_cosine")) == pytest.approx(raw if cap else 0.0, abs=2e-3)
        assert not any("caps" in note for note in uncone.diagnose(f"{folder}#input").notes)

    def test_one_matrix_of_a_model(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "m", healthy(), drifted())
        table, head, named = (uncone.diagnose(f"{folder}#{name}") for name in ("input", "head", "embed_out.weight"))
        assert [[s.name for s in d.subjects] for d in (table, head, named)] == [["input"], ["head"], ["head"]]
        assert named.verdict == head.verdict


class TestMiniLM:
    def test_the_headline_is_healthy_and_the_tail_is_not(self, of_minilm: Diagnosis, minilm: Path) -> None:
        d, (subject,) = of_minilm, of_minilm.subjects
        assert (subject.n, subject.d, subject.dtype) == (30522, 384, "float32")
        whole = "shows no defect as a whole (mean cosine 0.02, effective rank 352 of 384)"
        assert d.verdict.startswith(f"The input token table {whole}, but its tail is degenerate")
        assert _causes(subject) == ["degenerate_tail"]
        assert "994 reserved tokens" in subject.findings[0].evidence[0]
        assert d.notes == ("BertModel has no output head: this checkpoint holds the model without it",)
        rising = [g.cosine_to_reserved for g in subject.groups.bins if g.start in (3000, 30000)]
        assert [round(c or 0, 3) for c in rising] == [-0.046, 0.713]
        assert all(m.value is not None for m in subject.measurements)
        assert str(minilm.parent.parent) not in d.to_json()  # a report is shared

    def test_the_picture_shows_every_row_where_it_lies(self, of_minilm: Diagnosis, minilm: Path) -> None:
        picture = of_minilm.subjects[0].picture
        assert len(picture.ids) == picture.total == 30522
        assert picture.labels[100] == "[UNK]"
        x = torch.from_numpy(np.concatenate(list(uncone.open_rows(f"{minilm}#input").blocks()))).double()
        for centered in (False, True):
            y = x - x.mean(0) if centered else x
            axes = torch.linalg.eigh(y.T @ y)[1][:, -3:].flip(1)
            found = torch.tensor(picture.coordinates(centered=centered), dtype=torch.float64)
            expected = y @ axes
            expected *= (expected * found).sum(0).sign()
            assert torch.allclose(found, expected, atol=float(expected.abs().max()) / 30000)


class TestRecord:
    def test_json_and_back(self, tmp_path: Path) -> None:
        d, path = uncone.diagnose(write_model(tmp_path / "m", rare_tail(), drifted())), tmp_path / "d.json"
        d.save(path)
        assert Diagnosis.load(path) == d
        text = path.read_text()
        assert not re.search("NaN|Infinity", text)
        assert json.loads(text)["schema"] == "uncone.diagnosis/1"

    def test_an_undefined_measure_is_a_record_with_its_reason(self) -> None:
        subject = uncone.diagnose(torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])).subjects[0]
        isoscore = subject.measurement("isoscore")
        assert (isoscore.value, "all equal" in isoscore.reason) == (None, True)
        assert subject.measurement("mean_cosine").value == pytest.approx(1.0)
        with pytest.raises(uncone.UndefinedMeasure, match="isoscore is undefined: expected rows that differ"):
            float(isoscore)
        with pytest.raises(KeyError):
            subject.measurement("nothing")

    @pytest.mark.parametrize(
        "x", [torch.ones(1, 1), torch.zeros(4, 3), torch.ones(2, 5), gaussian(3, 1), gaussian(2, 2)]
    )
    def test_tiny_inputs_get_an_answer(self, x: torch.Tensor) -> None:
        d = uncone.diagnose(x)
        assert d.verdict
        assert Diagnosis.from_json(d.to_json()) == d
        assert uncone.report.to_html(d)

    def test_too_little_is_not_called_healthy(self) -> None:
        d = uncone.diagnose(torch.ones(1, 4))
        assert d.verdict == "The collection could not be judged: 1 row is not enough."
        assert [f.cause for f in d.subjects[0].findings] == ["not_measured"]

    @pytest.mark.parametrize(("n", "d"), [(2, 16), (5, 8), (10, 3), (30, 100), (40, 4), (300, 3), (1500, 2)])
    def test_isotropic_noise_of_any_size_is_left_alone(self, n: int, d: int) -> None:
        for seed in range(10):
            subject = uncone.diagnose(gaussian(n, d, seed=seed)).subjects[0]
            assert _causes(subject) == [], (seed, subject.findings)
            assert subject.findings[0].cause == ("not_measured" if n < 30 else "untrained"), subject.findings

    def test_sorted_clusters_have_no_rare_tail(self) -> None:
        centers = gaussian(10, 32)
        x = torch.cat([centers[k] + gaussian(1000, 32, seed=k) for k in range(10)])
        assert "degenerate_tail" not in _causes(uncone.diagnose(x).subjects[0], "note", "warning", "severe")

    def test_padding_rows_do_not_hide_the_tail(self, tmp_path: Path) -> None:
        x = rare_tail()
        x[-30:] = 0
        x[60:200] = 0
        subject = uncone.diagnose(write_model(tmp_path / "m", x)).subjects[0]
        assert _causes(subject) == ["degenerate_tail", "zero_rows"]
        assert all(g.cosine_to_reserved is not None for g in subject.groups.bins)  # type: ignore[union-attr]

    def test_extreme_scales_get_an_answer(self) -> None:
        for scale in (1e-130, 1e130):
            (subject,) = uncone.diagnose(gaussian(200, 16, dtype=torch.float64) * scale).subjects
            assert subject.measurement("isoscore").value == pytest.approx(0.92, abs=0.05)

    def test_normalised_rows_have_no_order_of_norms(self) -> None:
        subject = uncone.diagnose(torch.nn.functional.normalize(gaussian(9000, 64), dim=1)).subjects[0]
        assert subject.measurement("norm_id_correlation").value is None
        assert subject.norms.counts == (9000,)

    def test_bins_go_by_the_ids_of_the_source(self) -> None:
        x = gaussian(1500, 4)
        x[1200] = float("nan")
        bins = [(g.start, g.stop, g.n) for g in uncone.diagnose(x, skip_nonfinite=True).subjects[0].groups.bins]
        assert bins == [(k, min(k + 200, 1500), 200 - (k == 1200) - 100 * (k == 1400)) for k in range(0, 1500, 200)]

    def test_rows_left_out_are_counted(self) -> None:
        x = healthy()
        x[[5, 77]] = float("nan")
        d = uncone.diagnose(x, skip_nonfinite=True)
        assert (d.subjects[0].left_out, d.subjects[0].n) == (2, V - 2)
        assert 5 not in d.subjects[0].picture.ids
        assert "2 rows" in uncone.report.to_html(d)
        refuses(r"got 2 rows of 8000 with NaN or inf in tensor \(rows 5, 77\)", uncone.diagnose, x)

    def test_few_dimensions_are_not_rogue_and_zero_rows_are_counted(self) -> None:
        x = gaussian(3000, 4) + 1
        assert _causes(uncone.diagnose(x).subjects[0]) == ["common_direction_drift"]
        x[3] = 0
        assert "1 row is all zero" in uncone.diagnose(x).subjects[0].measurement("mean_cosine").warnings[0]

    def test_progress_is_told(self) -> None:
        seen, n = list[tuple[str, int, int]](), GRID + 5
        uncone.diagnose(gaussian(n, 3), skip_nonfinite=True, progress=lambda *step: seen.append(step))
        steps = ("looking for rows that are not finite", GRID, n), ("summing", GRID, n), ("finding eigenvalues", 0, 0)
        assert seen[0][0] == "opening"
        steps = (*steps, ("drawing", n, n), ("partition function", n, n))
        assert {(f"rows: {what}", *at) for what, *at in steps} <= {*seen}

    def test_many_rows_are_sampled_and_said(self) -> None:
        d = uncone.diagnose(np.random.default_rng(0).standard_normal((40_000, 3), dtype=np.float32))
        picture = d.subjects[0].picture
        assert (picture.total, len(picture.ids) <= 32768 + 2048) == (40_000, True)
        assert "40" in uncone.report.to_html(d)


def _nested(levels: int) -> dict[str, object]:
    inner: dict[str, object] = {}
    for _ in range(levels):
        inner = {"a": inner}
    return inner


def _put(data: Any, place: Sequence[str | int], value: object) -> None:
    """The value at its place in parsed JSON; an ellipsis takes out what is there."""
    *path, last = place
    for key in path:
        data = data[key]
    if value is ...:
        del data[last]
    else:
        data[last] = value


class TestBrokenRecords:
    base = json.loads(uncone.diagnose(gaussian(30, 3)).to_json())

    @pytest.mark.parametrize(
        ("place", "value", "message"),
        [
            ("verdict", ..., "missing field 'verdict' in diagnosis"),
            ("extra", 1, "unknown field 'extra' in diagnosis"),
            ("schema", "uncone.diagnosis/99", "a diagnosis of schema 'uncone.diagnosis/1', got 'uncone.diagnosis/99'"),
            ("subjects", 3, "expected a list at diagnosis.subjects, got 3"),
            ("subjects 0 n", "many", r"expected an integer at diagnosis.subjects\[0\].n, got 'many'"),
            ("subjects 0 measurements 0 value", True, "expected a finite number at"),
            ("subjects 0 measurements 0 range", [0], "expected a list of 2 at"),
            ("subjects 0 findings 0 level", "fine", f"expected one of {str(LEVELS)[1:-1]} at"),
            ("subjects 0 picture raw", "!!", "expected base64 in the picture's 'raw'"),
            ("subjects 0 picture raw", "", "expected 30 rows of three int16"),
            ("subjects 0 picture groups 0", 9, "expected groups below 4"),
            ("subjects 0 picture labels 0", ..., "expected 30 labels and groups"),
            ("subjects 0 picture raw_scale", 1e308, "expected scales of the picture"),
            ("subjects 0 measurements 0 value", 10**400, "expected a finite number at"),
            ("subjects 0 measurements 0 details", _nested(700), "expected at most 20 levels"),
            ("subjects 0 measurements 0 details", {"a": [10**400]}, "expected finite numbers and integers below"),
            ("subjects 0 n", 2**63, "expected an integer below 2\\^63"),
            ("subjects 0 norms edges", [], "rising edges"),
            ("subjects 0 groups bins 0 stop", 0, "expected bins from a start to a later stop"),
        ],
    )
    def test_each_is_refused_by_name(self, place: str, value: object, message: str) -> None:
        data = json.loads(json.dumps(self.base))
        _put(data, [int(key) if key.isdigit() else key for key in place.split()], value)
        refuses(message, Diagnosis.from_json, json.dumps(data))

    def test_no_count_is_negative(self) -> None:
        """Every integer of a record counts rows, names one, or is a place: set to -1, each is refused by its name."""
        whole = json.loads(json.dumps(self.base))
        token = UnderTrainedToken(5, "a", 0.1, 0.1, 0.1, 1.0, None, None, count=2)
        whole["subjects"][0]["under_trained"] = dataclasses.asdict(UnderTrained(3, tested=7, tokens=(token,)))
        whole = json.loads(json.dumps(whole))
        places = [place for place in _integers_in(whole, ()) if "details" not in place]
        some = {"n", "d", "left_out", "bin_size", "zero_rows", "stop", "total", "tested", "id"}
        assert {place[-1] for place in places} >= some
        for place in places:
            data = json.loads(json.dumps(whole))
            _put(data, place, -1)
            name = "diagnosis" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
            with pytest.raises(InputError, match=re.escape(f"expected a whole number from 0 up at {name}, got -1")):
                Diagnosis.from_json(json.dumps(data))

    def test_a_number_that_is_read_as_infinite(self) -> None:
        data = json.loads(json.dumps(self.base))
        _put(data, ("subjects", 0, "measurements", 0, "details"), {"a": ["beyond"]})
        with pytest.raises(InputError, match="expected finite numbers and integers below"):
            Diagnosis.from_json(json.dumps(data).replace('"beyond"', "1e999"))

    @pytest.mark.parametrize("text", ["", "nonsense", "[" * 100_000, '{"schema": NaN}'])
    def test_what_is_no_json(self, text: str) -> None:
        refuses("expected a diagnosis in JSON", Diagnosis.from_json, text)

    def test_files_and_frozen_records(self, tmp_path: Path) -> None:
        (tmp_path / "b.json").write_bytes(b"\xff\xfe")
        for name, message in (("nothing.json", "cannot read"), ("b.json", "expected JSON in UTF-8")):
            refuses(message, Diagnosis.load, tmp_path / name)
        with pytest.raises(dataclasses.FrozenInstanceError):
            Diagnosis.from_json(json.dumps(self.base)).verdict = "fine"  # type: ignore[misc]


def _integers_in(data: object, place: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where integers lie in parsed JSON; of a list the first and the last."""
    if isinstance(data, int) and not isinstance(data, bool):
        yield place
    items = data.items() if isinstance(data, dict) else list(enumerate(data)) if isinstance(data, list) else []
    items = items if isinstance(data, dict) or len(items) < 3 else [items[0], items[-1]]
    for key, value in items:
        yield from _integers_in(value, (*place, key))


@pytest.mark.parametrize("suffix", ["txt", "parquet"])
def test_labels_of_a_megabyte_are_cut_in_the_record(tmp_path: Path, suffix: str) -> None:
    """16 rows with labels of 1 MB each made a JSON of 16 MB. Words are still looked up by all they are."""
    x, path = gaussian(40, 4), tmp_path / f"x.{suffix}"
    x[20:] *= 1e-3  # found to be untrained, as the reserved rows are
    words = [f"[unused{'0' * (10**6 if i > 30 else 0)}{i}]" if i > 25 else f"{'w' * 10**6}{i}" for i in range(40)]
    if suffix == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        schema = pa.schema([("v", pa.list_(pa.float32())), ("word", pa.string())])
        pq.write_table(pa.table({"v": x.tolist(), "word": words}, schema=schema), path)
    else:
        lines = (f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, x.tolist(), strict=True))
        path.write_text("".join(lines))
    rows = uncone.open_rows(path)
    d = uncone.diagnose(rows, counts=torch.arange(40), neighbours=True)
    assert len(d.to_json()) < 200_000
    assert {len(label or "") for label in d.subjects[0].picture.labels} <= ({200, 10} if suffix == "txt" else {80, 10})
    assert suffix == "parquet" or rows.labels == words


def test_tokens_of_a_megabyte_are_cut_among_the_untrained() -> None:
    x = gaussian(300, 64)
    x[:20] *= 1e-3
    rows = uncone.open_rows(x)
    labels = [None if i < 10 else f"{'w' * 10**6}{i}" if i < 20 else str(i) for i in range(300)]
    rows.load_labels = lambda: labels
    assert {len(token.token or "") for token in measure.under_trained_tokens(rows, prefer="norm").tokens} == {0, 200}


def test_the_verdict_names_what_is_only_a_note() -> None:
    x = gaussian(3000, 16)
    assert "note" not in uncone.diagnose(x).verdict
    x[5] = x[4]
    found = uncone.diagnose(x)
    assert (found.level, found.verdict.endswith(", with a note on equal rows.")) == ("note", True)
