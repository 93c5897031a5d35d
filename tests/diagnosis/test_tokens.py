"""Groups and under-trained tokens in a whole diagnosis: of tied and untied models, with and without counts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models

import uncone
from uncone import Diagnosis, InputError
from uncone.diagnosis.examination import Examination
from uncone.diagnosis.findings import find_under_trained
from uncone.diagnosis.tokens import TIED
from uncone.model.open import open_subjects
from uncone.records.tokens import UnderTrained

from ..matrices import gaussian
from ..planted import healthy, rare_tail, write_model
from ..planted_tokens import plant, plant_short

DATA = Path(__file__).parents[2] / "../shared/data/frequency"


def _news(under_trained: UnderTrained | None) -> set[int]:
    return {token.id for token in under_trained.tokens if not token.expected}


def _causes(subject: uncone.Subject, *levels: str) -> list[str]:
    return [f.cause for f in subject.findings if f.level in levels]


class TestRoles:
    def test_of_a_tied_model_the_head_is_read(self, tmp_path: Path) -> None:
        planted = plant(reserved=30, drift=1.1)
        table, head = uncone.diagnose(write_model(tmp_path / "m", planted.table, tokens=planted.labels)).subjects
        assert (table.under_trained, head.under_trained.indicator) == (UnderTrained(None, TIED), "cosine")
        assert len(_news(head.under_trained) & set(planted.planted.tolist())) >= 36

    def test_of_an_untied_one_the_table_is_read_by_norm(self, tmp_path: Path) -> None:
        short, pulled = plant_short(reserved=30), plant(reserved=30)
        folder = write_model(tmp_path / "m", short.table, pulled.table, tokens=short.labels)
        table, head = uncone.diagnose(folder).subjects
        assert (table.under_trained.indicator, head.under_trained.indicator) == ("norm", "cosine")
        for subject in (table, head):
            assert len(_news(subject.under_trained) & set(short.planted.tolist())) >= 36
            assert [g.name for g in subject.frequency_groups.groups] == ["frequent", "medium", "rare", "reserved"]

    def test_a_collection_has_neither_unless_it_is_counted(self) -> None:
        x = gaussian(300, 5)
        subject = uncone.diagnose(x).subjects[0]
        assert subject.frequency_groups is subject.under_trained is None
        counted = uncone.diagnose(x, counts=np.arange(300)).subjects[0]
        assert counted.frequency_groups.by == "count"
        assert counted.frequency_groups.groups[0].occurrences == sum(range(210, 300))
        assert counted.under_trained is None

    def test_healthy_models_say_why_nothing_is_told(self, tmp_path: Path) -> None:
        for subject in uncone.diagnose(write_model(tmp_path / "m", healthy(), healthy(1))).subjects:
            assert subject.under_trained.found is None
            assert "got 0 of 200" in subject.under_trained.reason
            assert _causes(subject, "note", "warning", "severe") == []

    def test_a_real_architecture(self, tmp_path: Path) -> None:
        """A GPT-NeoX with a head of its own, saved by transformers, with rows that were never trained."""
        transformers = pytest.importorskip("transformers")
        size = {"vocab_size": 2000, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
        config = transformers.GPTNeoXConfig(**size, num_attention_heads=2, tie_word_embeddings=False)
        model, of = transformers.GPTNeoXForCausalLM(config), {"n": 2000, "d": 32, "reserved": 20, "planted": 30}
        planted, short = plant(**of, pull=1.2), plant_short(**of)
        with torch.no_grad():
            model.get_input_embeddings().weight.copy_(short.table)
            model.get_output_embeddings().weight.copy_(planted.table)
        model.save_pretrained(tmp_path / "m")
        (tmp_path / "m" / "vocab.json").write_text(json.dumps({label: i for i, label in enumerate(planted.labels)}))
        found = {s.name: s.under_trained for s in uncone.diagnose(tmp_path / "m").subjects}
        for name in ("input", "head"):
            assert len(_news(found[name]) & set(planted.planted.tolist())) >= 27, name


class TestCounts:
    def test_a_file_by_token(self, tmp_path: Path) -> None:
        planted = plant(reserved=20)
        lines = [f"{label}\t{4000 - i}" for i, label in enumerate(planted.labels) if not label.startswith("[")]
        (tmp_path / "c.tsv").write_text("token\tcount\n" + "\n".join(lines))
        folder = write_model(tmp_path / "m", planted.table, tokens=planted.labels)
        table, head = uncone.diagnose(folder, counts=tmp_path / "c.tsv").subjects
        for subject in (table, head):
            assert subject.notes == ("20 rows are not named in c.tsv: their count is taken as 0.",)
            assert subject.frequency_groups.groups[-1].occurrences == 0
        token = head.under_trained.tokens[0]
        assert token.count == 4000 - token.id

    def test_rows_that_were_left_out(self, tmp_path: Path) -> None:
        planted = plant(reserved=20)
        planted.table[[7, 3999]] = float("nan")
        folder = write_model(tmp_path / "m", planted.table, tokens=planted.labels)
        head = uncone.diagnose(folder, counts=torch.arange(4000), skip_nonfinite=True).subjects[1]
        assert all(token.count == token.id for token in head.under_trained.tokens)
        with pytest.raises(InputError, match=r"expected 4000 counts, got int64 of shape \(3998,\)"):
            uncone.diagnose(folder, counts=torch.arange(3998), skip_nonfinite=True)


class TestFinding:
    found = UnderTrained(50, "", "cosine", definition="d", rate=0.01, tested=4000, known=9, known_found=8)

    def test_few_are_a_note_and_many_a_warning(self) -> None:
        (many,), (few,) = (find_under_trained(replace(self.found, found=k), tail_is_named=False) for k in (50, 1))
        assert (many.level, few.level) == ("warning", "note")
        assert many.summary.startswith("50 tokens look untrained")
        assert few.summary.startswith("1 token looks untrained")
        assert "of the 9 rows known to be unused, 8 look untrained" in many.evidence[1]

    def test_none(self) -> None:
        for nothing in (None, UnderTrained(None, "why"), replace(self.found, found=0)):
            assert find_under_trained(nothing, tail_is_named=False) == []

    def test_scattered_tokens_are_in_the_verdict(self, tmp_path: Path) -> None:
        planted = plant(n=8000, reserved=200, planted=300)
        d = uncone.diagnose(write_model(tmp_path / "m", healthy(), planted.table, tokens=planted.labels))
        assert "under_trained_tokens" in _causes(d.subjects[1], "warning")
        assert "of its tokens look untrained" in d.verdict

    def test_a_tail_stays_the_one_warning(self, tmp_path: Path) -> None:
        d = uncone.diagnose(write_model(tmp_path / "m", rare_tail()))
        assert _causes(d.subjects[1], "warning", "severe") == ["degenerate_tail"]
        assert "under_trained_tokens" in _causes(d.subjects[1], "note")
        assert _news(d.subjects[1].under_trained) <= set(range(7500, 8000))
        assert d.subjects[1].under_trained.found == pytest.approx(500, abs=10)  # type: ignore[union-attr]


class TestRecord:
    def test_json_and_back(self, tmp_path: Path) -> None:
        planted = plant(reserved=20)
        path = write_model(tmp_path / "m", planted.table, tokens=planted.labels)
        d = uncone.diagnose(path, counts=torch.arange(4000))
        assert Diagnosis.from_json(d.to_json()) == d

    def test_a_record_from_before_still_loads(self) -> None:
        data = json.loads(uncone.diagnose(gaussian(40, 3)).to_json())
        for subject in data["subjects"]:
            del subject["frequency_groups"], subject["under_trained"]
        assert Diagnosis.from_json(json.dumps(data)).subjects[0].under_trained is None

    def test_an_edited_interval_is_refused(self) -> None:
        data = json.loads(uncone.diagnose(gaussian(40, 3), counts=np.arange(40)).to_json())
        data["subjects"][0]["frequency_groups"]["groups"][0]["mean_cosine"]["interval"] = [2.0, 3.0]
        with pytest.raises(InputError, match="expected a value inside its interval"):
            Diagnosis.from_json(json.dumps(data))

    @pytest.mark.parametrize(
        "x", [torch.ones(1, 1), torch.zeros(4, 3), torch.ones(20, 5), gaussian(3, 1), gaussian(12, 2)]
    )
    def test_tiny_tables_get_an_answer(self, tmp_path: Path, x: torch.Tensor) -> None:
        d = uncone.diagnose(write_model(tmp_path / "m", x), counts=torch.ones(len(x)))
        assert Diagnosis.from_json(d.to_json()) == d
        assert uncone.report.to_html(d)


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared counts are not there")
def test_what_is_named_in_minilm_hardly_occurs_in_a_billion_words(minilm: Path) -> None:
    """The counts played no part in naming them: 99 of 100 occur at most ten times in LM1B."""
    d = uncone.diagnose(minilm, counts=DATA / "bert-base-uncased_lm1b_token_counts.tsv")
    found, groups = d.subjects[0].under_trained, d.subjects[0].frequency_groups
    assert 1200 < found.found < 1600
    assert (found.known, found.known_found) == (994, 993)
    news = [token for token in found.tokens if not token.expected]
    assert sum(token.count is not None and token.count <= 10 for token in news) >= 0.99 * len(news)
    cosines = {g.name: round(g.mean_cosine.value or 0, 3) for g in groups.groups}
    assert cosines == {"frequent": 0.012, "medium": 0.014, "rare": 0.057, "never_seen": 0.522, "reserved": 0.822}
    assert groups.groups[2].mean_cosine.interval[0] > 0.05


class TestOneLength:
    @staticmethod
    def _findings(tmp_path: Path, known: int, others: int) -> dict[str, uncone.Finding]:
        """An untied model whose reserved rows, and so many others, were only drawn and shrunk."""
        table = healthy()
        rows = [*range(known), *range(4000, 4000 + others)]
        table[rows] = 0.2 * gaussian(len(rows), table.shape[1], seed=5) / table.shape[1] ** 0.5
        path = write_model(tmp_path / f"m{known}_{others}", table, healthy(seed=3))
        return {f.cause: f for f in uncone.diagnose(str(path)).subjects[0].findings}

    def test_what_weight_decay_leaves_is_named(self, tmp_path: Path) -> None:
        assert self._findings(tmp_path, 200, 0)["decayed_rows"].level == "structure"
        assert "decayed_rows" not in self._findings(tmp_path, 0, 0)

    def test_a_hundredth_of_the_rows_is_many(self, tmp_path: Path) -> None:
        assert self._findings(tmp_path, 0, 78)["decayed_rows"].level == "structure"
        many = self._findings(tmp_path, 0, 90)["decayed_rows"]
        assert many.level == "note"
        assert "rows have the same short length" in many.summary
        assert many.evidence[0].startswith("length 0.")


class TestText:
    """A small text is not the text of the training."""

    def test_tokens_that_a_text_leaves_out_are_not_untrained(self, tmp_path: Path) -> None:
        planted = plant(reserved=0, planted=40)
        counts = np.where(np.arange(4000) % 3 == 0, 5, 0)
        counts[planted.planted] = 0
        folder = write_model(tmp_path / "m", planted.table, tokens=[f"token{i}" for i in range(4000)])
        opened = open_subjects(folder)
        for of_training in (False, True):
            head = Examination("head", opened.rows[-1][1], None, "head", counts, of_training=of_training).run()
            said = any("need not be the training text" in note for note in head.notes)
            assert said is not of_training
            assert "rows of count 0" not in head.under_trained.reference
            if not of_training:
                assert head.under_trained.indicator != "cosine"

    def test_counts_of_the_training_text_show_them(self, tmp_path: Path) -> None:
        planted = plant(reserved=0, planted=40)
        counts = np.full(4000, 5)
        counts[planted.planted] = 0
        head = uncone.diagnose(
            write_model(tmp_path / "m", planted.table, tokens=planted.labels), counts=counts
        ).subjects[1]
        assert head.under_trained.reference.startswith("40 rows of count 0")
        assert _news(head.under_trained) == set(planted.planted.tolist())


class TestNewRows:
    @staticmethod
    def _grown(scale: float, n: int = 12, direction: float = 0.0) -> torch.Tensor:
        fresh = gaussian(n, 64, seed=5) / 8 + direction
        return torch.cat([healthy(v=4000), scale * fresh])

    @pytest.mark.parametrize(("scale", "named"), [(0.15, True), (0.3, True), (4.0, True), (0.8, False), (1.6, False)])
    def test_random_rows_of_another_length_are_named(self, tmp_path: Path, scale: float, named: bool) -> None:
        table = self._grown(scale)
        tokens = [f"token{i}" for i in range(4012)]
        d = uncone.diagnose(write_model(tmp_path / "m", table, healthy(v=4012), tokens=tokens))
        found = {f.cause: f for f in d.subjects[0].findings}
        assert ("new_rows" in found) is named
        if named:
            new = found["new_rows"]
            assert (new.level, new.extent) == ("warning", 12 / 4012)
            assert "ids 4,000 to 4,011" in new.summary
            assert "token4000" in new.evidence[-1]
            assert new.command.endswith("m m-set --tokens 4000-4011")
            assert "decayed_rows" not in found

    @pytest.mark.parametrize(("apart", "named"), [(1e-4, True), (1e-2, False)])
    def test_rows_near_one_vector_are_named(self, tmp_path: Path, apart: float, named: bool) -> None:
        """As a resize leaves them: the mean of the others, with a little noise."""
        table = healthy(v=4000) + 0.05
        fresh = table.mean(0) + apart * table.mean(0).norm() * gaussian(2500, 64, seed=6) / 8
        tokens = [f"token{i}" for i in range(6500)]
        d = uncone.diagnose(write_model(tmp_path / "m", torch.cat([table, fresh]), healthy(v=6500), tokens=tokens))
        found = {f.cause: f for f in d.subjects[0].findings}
        assert ("new_rows" in found) is named
        if named:
            assert found["new_rows"].summary.startswith(
                "The last 2,500 rows (ids 4,000 to 6,499) are nearly one vector"
            )
            assert "token4000" in found["new_rows"].evidence[-1]
            assert found["new_rows"].command.endswith("m m-set --tokens 4000-6499")
            assert not found.keys() & {"degenerate_tail", "near_copies", "equal_rows"}

    def test_one_short_vector_and_lengths_that_fall_are_none(self, tmp_path: Path) -> None:
        tables = (self._grown(0.2, direction=1.0), healthy(v=4012) * torch.linspace(2, 0.1, 4012)[:, None])
        for i, table in enumerate(tables):
            d = uncone.diagnose(write_model(tmp_path / str(i), table, tokens=[f"token{i}" for i in range(4012)]))
            assert "new_rows" not in {f.cause for f in d.subjects[0].findings}

    def test_reserved_rows_and_rows_without_a_token_are_none(self, tmp_path: Path) -> None:
        tokens = [f"token{i}" if i < 4000 else f"[unused{i}]" for i in range(4012)]
        for i, names in enumerate((tokens, tokens[:4000])):
            d = uncone.diagnose(write_model(tmp_path / str(i), self._grown(0.15), tokens=names))
            assert "new_rows" not in {f.cause for f in d.subjects[0].findings}


class TestSpecialTokens:
    def test_of_a_tokenizer_they_are_the_group_that_bins_are_compared_to(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "m", healthy(v=2000), tokens=[f"token{i}" for i in range(2000)])
        tokenizer = Tokenizer(models.WordLevel({f"token{i}": i for i in range(2000)}, unk_token="token0"))
        tokenizer.add_special_tokens([f"token{i}" for i in range(7, 19)])
        tokenizer.add_tokens(["token30"])
        tokenizer.save(str(folder / "tokenizer.json"))
        d = uncone.diagnose(folder)
        for subject in d.subjects:
            groups = subject.groups
            assert groups.reserved == "12 special tokens found in the tokenizer (token7 to token18)"
            assert (groups.named, groups.called, groups.reserved_by_name) == ("special", "special tokens", True)
            assert sum(one.reserved_rows for one in groups.bins) == 12
        page = uncone.report.to_html(d)
        assert "Cosine to special tokens" in page
        assert "reserved rows" not in page.partition("Frequent and rare tokens")[0].partition("The picture")[2]

    def test_the_last_ids_are_never_called_reserved(self, tmp_path: Path) -> None:
        d = uncone.diagnose(write_model(tmp_path / "m", rare_tail(), tokens=[f"token{i}" for i in range(8000)]))
        groups = d.subjects[0].groups
        assert (groups.reserved_by_name, groups.called) == (False, "the last ids")
        page = uncone.report.to_html(d)
        assert "Cosine to the last ids" in page
        assert "Last ids: the last 800 ids, because the tokenizer names no reserved tokens" in page


class TestNamedOnce:
    """A row found untrained is no equal, zero, new or decayed row in another finding."""

    @staticmethod
    def _findings(folder: Path, table: torch.Tensor, labels: list[str], *head: torch.Tensor) -> list[uncone.Subject]:
        return list(uncone.diagnose(write_model(folder, table, *head, tokens=labels)).subjects)

    def test_equal_rows_are_untrained_or_copies(self, tmp_path: Path) -> None:
        planted = plant(reserved=30, pull=1.2)
        untrained = planted.planted[:4].tolist()
        trained = sorted({*range(4000)} - {*planted.unused.tolist(), *planted.planted.tolist()})[:3]
        for rows in (untrained, trained):
            planted.table[rows] = planted.table[rows[0]].clone()
        for subject in self._findings(tmp_path / "m", planted.table, planted.labels):
            (equal,) = [one for one in subject.odd_rows if one.kind == "equal"]
            assert (equal.n, equal.ids, set(equal.twins)) == (2, tuple(trained[1:]), {trained[0]})
            assert equal.most == (trained[0], 3)
            (said,) = [f for f in subject.findings if f.cause == "equal_rows"]
            assert not any(str(i) in line.replace(",", "") for i in untrained for line in said.evidence)
        named = {one.id: one.kinds for one in subject.under_trained.listed("found")}
        assert all("place" in named[i] for i in untrained)
        assert not named.keys() & set(trained)

    def test_equal_untrained_rows_alone_are_no_finding_of_equal_rows(self, tmp_path: Path) -> None:
        planted = plant(reserved=30, pull=1.2)
        planted.table[planted.planted[:4]] = planted.table[planted.planted[0]].clone()
        for subject in self._findings(tmp_path / "m", planted.table, planted.labels):
            assert "equal_rows" not in {f.cause for f in subject.findings}

    def test_zero_rows_are_not_untrained_ones_too(self, tmp_path: Path) -> None:
        planted = plant_short(reserved=30)
        zero = planted.planted[:5].tolist()
        planted.table.mul_(torch.linspace(1.25, 0.75, 64))
        planted.table[zero] = 0
        subject = self._findings(tmp_path / "m", planted.table, planted.labels, healthy(v=4000))[0]
        found = {f.cause: f for f in subject.findings}
        assert set(zero) <= _news(subject.under_trained)
        assert found["zero_rows"].summary.startswith("5 rows are zero")
        n = subject.under_trained.found
        assert found["under_trained_tokens"].summary.startswith(f"{n - 5} tokens look")
        assert "5 of them are zero or new rows" in " ".join(found["under_trained_tokens"].evidence)

    def test_rows_that_weight_decay_left_are_untrained_ones(self, tmp_path: Path) -> None:
        """Of an input table of its own, whose reserved rows show what short rows are."""
        planted = plant_short(reserved=30, planted=90)
        subject = self._findings(tmp_path / "m", planted.table, planted.labels, healthy(v=4000))[0]
        found = {f.cause: f for f in subject.findings}
        assert _news(subject.under_trained) >= set(planted.planted.tolist())
        n = int(found["decayed_rows"].summary.split()[0])
        assert n <= 30
        assert found["decayed_rows"].evidence[1] == f"{n} rows are known to be unused"

    def test_a_record_from_before_still_loads(self, tmp_path: Path) -> None:
        planted = plant(reserved=30, pull=1.2)
        d = uncone.diagnose(write_model(tmp_path / "m", planted.table, tokens=planted.labels))
        data = json.loads(d.to_json())
        of = data["subjects"][1]["under_trained"]
        del of["kinds"]
        for token in of["tokens"]:
            del token["kinds"]
        old = Diagnosis.from_json(json.dumps(data)).subjects[1].under_trained
        assert (old.kinds, {one.kinds for one in old.tokens}) == ((), {()})
        assert old.found == d.subjects[1].under_trained.found
        assert uncone.report.to_html(Diagnosis.from_json(json.dumps(data)))
