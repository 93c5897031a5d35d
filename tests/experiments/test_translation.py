"""The bench of remedies in translation: its pairs, its resumable cells, its scores against loops."""

import gc
import gzip
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra [hf] is not installed")
pytest.importorskip("sacrebleu", reason="the extra [dev] is not installed")

import sacrebleu
import torch

import uncone
from tests.command import load_script
from uncone import InputError
from uncone.training.monitor.run_file import RunFile

Load = Callable[[str], Any]
ROOT = Path(__file__).parents[2] / "experiments"
CONFIG: dict[str, Any] = {
    "name": "tiny",
    "text": {"vocabulary": 300},
    "model": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "dropout": 0.1, "length": 64},
    "training": {"steps": 24, "batch": 4, "warm_up": 0.1, "clip": 1.0, "label_smoothing": 0.1, "monitor_every": 6},
    "measured": {"test": ["one", "two"], "rare_words": 1, "beams": 2, "length_penalty": 0.6},
    "cells": [{"arms": ["mle", "agg"], "rates": [2e-3], "seeds": [0, 1]}],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random, folder = np.random.default_rng(0), tmp_path / "data"
    folder.mkdir()
    words, weights = np.array([f"{a}{b}{c}" for a in "klm" for b in "aeiou" for c in "nrst"]), 1 / np.arange(1, 61)
    for name, many in (("train", 60), ("val", 5), ("one", 7), ("two", 6)):
        drawn = [random.choice(words, size=int(random.integers(2, 9)), p=weights / weights.sum()) for _ in range(many)]
        write(folder, f"{name}.en", [" ".join(line) for line in drawn])
        write(folder, f"{name}.de", [" ".join(line[::-1]).title() + "." for line in drawn])
    return folder


def write(folder: Path, name: str, lines: list[str]) -> None:
    (folder / f"{name}.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


@pytest.fixture
def text(translation: Load, data: Path, tmp_path: Path) -> Any:
    return translation("bitext").Bitext(data, tmp_path / "work", 300)


@pytest.fixture
def bench(translation: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """mt_train.py, whose results go to a folder of the test, saved after every 8 steps."""
    train = translation("mt_train")
    monkeypatch.setattr(train, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(train.one_cell, "SAVE_EVERY", 8)
    monkeypatch.setattr(train.one_cell, "LOG_EVERY", 4)
    return train


def cell_of(bench: Any, arm: str = "agg", rate: float = 2e-3) -> Any:
    return bench.Cell("tiny", arm, rate, 0, batch=4)


def test_pairs_of_a_batch_are_about_equally_long_and_each_comes_once_a_round(bench: Any, text: Any) -> None:
    sources, targets = text.ids("train", 64)
    assert text.tokenizer.decode(targets[3][:-1]) == text.lines("train", "de")[3]
    assert {one[-1] for one in sources + targets} == {text.end}
    pairs = bench.Pairs(sources, targets, 15, 4, 0)
    assert sorted(pairs[i] for i in range(60)) == sorted(zip(sources, targets, strict=True))
    lengths = np.array([len(pairs[i][1]) for i in range(60)]).reshape(15, 4)
    assert np.ptp(lengths, axis=1).mean() < 0.3 * np.ptp(lengths)
    assert len(set(lengths[:, 0].tolist())) > 5
    counts = Counter(i for one in targets for i in one)
    assert text.counts(64).tolist() == [counts[i] for i in range(text.vocabulary)]


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("val.de", None, r"expected val\.de\.gz in .*got none"),
        ("val.de", [], "empty file"),
        ("val.de", ["Ein Hund.", " ", "Ein Haus."], "none in line 2"),
        ("val.de", ["Ein Hund."], "got 5 and 1: pair them"),
        ("val.en", ["kan " * 70] * 5, "raise length"),
    ],
)
def test_texts_that_are_no_pairs_are_refused(text: Any, name: str, lines: list[str] | None, message: str) -> None:
    if lines is None:
        (text.folder / f"{name}.gz").unlink()
    else:
        write(text.folder, name, lines)
    with pytest.raises(InputError, match=message):
        text.ids("val", 64)


def test_the_loss_that_trains_is_smoothed_once(bench: Any, text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def fit(*of: Any, **more: Any) -> dict[str, Any]:
        given.update(more, of=of)
        return {"diverged": True}

    monkeypatch.setattr(bench.one_cell, "fit", fit)
    bench.train(cell_of(bench), CONFIG | {"model": CONFIG["model"] | {"dropout": 0.0}}, text, Path())
    model, pairs, counts = given["of"][4:]
    batch = given["collator"]([pairs[i] for i in range(4)])
    logits, labels = model(**batch).logits.flatten(0, 1), batch["labels"].flatten()
    expected = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=0.1)
    gate = bench.ARMS["agg"].attached(counts)
    with uncone.attach(model.train(), **given["attached_with"] | gate) as attached:
        torch.testing.assert_close(model(**batch).loss, expected)
        attached.step()
    assert model.lm_head.weight is model.model.encoder.embed_tokens.weight
    assert model.lm_head.weight is model.model.decoder.embed_tokens.weight


def test_scores_of_sentences_with_rare_words_are_those_of_a_loop(translation: Load, text: Any) -> None:
    measure, tables = translation("mt_measure"), translation("mt_tables")
    references = [line for name in ("one", "two") for line in text.lines(name, "de")]
    references[2] = "Kan Zebra zebra."
    write(text.folder, "one.de", references[:7])
    said = [" ".join(line.split()[: 1 + i % 4]) for i, line in enumerate(references)]
    said[2] = "Ein zebra"
    found = measure.of_translations(said, text, CONFIG["measured"])
    counts = Counter(re.findall("[a-z]+", " ".join(text.lines("train", "de")).lower()))
    rare, words, hits = [], 0, 0
    for i, line in enumerate(references):
        left = re.findall("[a-z]+", said[i].lower())
        of = [word for word in re.findall("[a-z]+", line.lower()) if counts[word] <= 1]
        rare += [i] * bool(of)
        words += len(of)
        for word in of:
            if word in left:
                left.remove(word)
                hits += 1
    assert 0 < len(rare) < 13
    assert hits >= 1
    run = tables.Run(None, {"measured": found})
    assert tables.sentences(run)[:, 10:].sum(0).tolist() == [words, hits]
    expected = sacrebleu.corpus_bleu([said[i] for i in rare], [[references[i] for i in rare]])
    assert tables.bleu_of(run, rare=True) == pytest.approx(expected.score)
    last = found["scores"][-1]
    assert (last["name"], last["sentences"]) == ("with rare words", len(rare))
    assert last["bleu"] == pytest.approx(expected.score)
    assert found["scores"][0]["chrf"] == pytest.approx(sacrebleu.corpus_chrf(said[:7], [references[:7]]).score)
    assert tables.bleu_of(run) == pytest.approx(sacrebleu.corpus_bleu(said, [references]).score)
    with pytest.raises(InputError, match="expected 13 translations, got 12"):
        measure.of_translations(said[1:], text, CONFIG["measured"])


def test_bleu_of_sums_is_smoothed_as_sacrebleus(translation: Load) -> None:
    measure, bleu = translation("mt_measure"), translation("mt_tables").bleu
    for said in ("a b c d e f", "a b x d e", "a x c", "x y z u v", "a b c d e f g h"):
        sums = np.array(measure.by_sentence([said], ["a b c d e f"], Counter(), 0)[0][:10], float)
        expected = sacrebleu.corpus_bleu([said], [["a b c d e f"]]).score if len(said) > 5 else 0.0
        if len(said.split()) >= 4:  # of fewer words sacrebleu has no 4-gram, and its score is 0
            assert float(bleu(sums)) == pytest.approx(expected)


def test_a_difference_varies_as_sentences_and_seeds_do(translation: Load) -> None:
    tables, random = translation("mt_tables"), np.random.default_rng(1)
    every = np.array([20, 19, 18, 17])

    def drawn(share: float) -> Any:
        matches = random.binomial(every, share * np.array([1, 0.7, 0.5, 0.4]), size=(200, 4))
        return np.column_stack([matches, np.tile([*every, 20, 20], (200, 1))]).astype(float)

    a, b = drawn(0.6), drawn(0.55)
    same = tables.difference([a], [a])
    assert (same.value, same.low, same.high, same.smallest) == (0, 0, 0, 0)
    found, loop = tables.difference([a], [b]), []
    for _ in range(1500):
        at = random.integers(200, size=200)
        loop.append(float(tables.bleu(a[at].sum(0)) - tables.bleu(b[at].sum(0))))
    assert (found.low, found.high) == pytest.approx(np.percentile(loop, (2.5, 97.5)).tolist(), abs=0.15 * np.ptp(loop))
    assert found.smallest == pytest.approx(2.8016 * np.std(loop), rel=0.08)
    fixed = [np.repeat(one[:1], 50, axis=0) for one in (a, drawn(0.7), b)]  # nothing but the seed varies
    gains = [float(tables.bleu(one[0]) - tables.bleu(fixed[2][0])) for one in fixed[:2]]
    of_two = tables.difference(fixed[:2], [fixed[2]] * 2)
    error = np.std(gains, ddof=1) / np.sqrt(2)
    assert (of_two.value, of_two.seeds) == (pytest.approx(np.mean(gains)), 2)
    assert of_two.smallest == pytest.approx(2.8016 * error, rel=0.05)


@pytest.mark.filterwarnings("ignore")
def test_measurements_are_those_of_single_sentences(translation: Load, bench: Any, text: Any, tmp_path: Path) -> None:
    measure, cell, kept = translation("mt_measure"), cell_of(bench), tmp_path / "kept.txt.xz"
    model = bench.make_model(CONFIG, text, 0).eval()
    model.save_pretrained(tmp_path / "work" / "cells" / cell.name / "model")
    found = measure.measure(cell, CONFIG, text, tmp_path / "work", kept)
    cut, sums = measure.by_ids(text.counts(64).numpy()), np.zeros((2, 4))
    for source, target in zip(*text.ids("val", 64), strict=True):
        logits = model(input_ids=torch.tensor([source]), labels=torch.tensor([target])).logits[0]
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(target), reduction="none")
        for g, nats in zip(cut[target], loss.tolist(), strict=True):
            sums[:, g] += 1, nats
    np.testing.assert_allclose(found["documents"][0][:8], sums.flatten(), rtol=1e-4)
    sources = [line for name in ("one", "two") for line in text.lines(name, "en")]
    alone = [measure.translated(model, text, [line], CONFIG["measured"], 64)[0] for line in sources]
    assert lzma.decompress(kept.read_bytes()).decode().split("\n") == alone
    assert measure.of_translations(alone, text, CONFIG["measured"])["scores"] == found["scores"]
    assert found["head"]["mean_cosine"] == pytest.approx(_mean_cosine(model.lm_head.weight.detach()), abs=1e-5)


def _mean_cosine(rows: torch.Tensor) -> float:
    unit = torch.nn.functional.normalize(rows)
    return float(((unit @ unit.T).sum() - len(unit)) / (len(unit) * (len(unit) - 1)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_stopped_cell_ends_as_one_that_was_not(
    bench: Any, text: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    cell = cell_of(bench)
    whole = bench.train(cell, CONFIG, text, tmp_path / "a")

    class StopError(Exception):
        pass

    class Stopping(bench.Pairs):  # type: ignore[misc, name-defined]
        def __getitem__(self, i: int) -> Any:
            if i == 4 * 13:
                raise StopError
            return super().__getitem__(i)

    with monkeypatch.context() as patched:
        patched.setattr(bench, "Pairs", Stopping)
        with pytest.raises(StopError):
            bench.train(cell, CONFIG, text, tmp_path / "b")
    for one in gc.get_objects():  # as the end of a process does
        if type(one) is RunFile:
            one.close()
    again = bench.train(cell, CONFIG, text, tmp_path / "b")
    one, other = (load_file(tmp_path / work / "cells" / cell.name / "model" / "model.safetensors") for work in "ab")
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name
    assert (whole["losses"], whole["validation_loss"]) == (again["losses"], again["validation_loss"])
    assert [step for step, _ in again["losses"]] == [4, 8, 12, 16, 20, 24]
    with pytest.raises(InputError, match="another"):
        bench.train(cell, CONFIG | {"model": CONFIG["model"] | {"dropout": 0.0}}, text, tmp_path / "b")
    diverged = bench.train(cell_of(bench, "mle", 100.0), CONFIG, text, tmp_path / "b")
    assert diverged["diverged"]
    assert "validation_loss" not in diverged


def test_the_queue_runs_this_experiments_cells(
    translation: Load, bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, config = translation("mt_fill"), CONFIG | {"cells": [*CONFIG["cells"]]}
    names = [cell.name for cell in fill.cells(config)]
    assert names == ["tiny-mle-0.002-0", "tiny-agg-0.002-0", "tiny-mle-0.002-1", "tiny-agg-0.002-1"]
    config["cells"] += [
        {"arms": ["agg"], "rates": [4e-3], "seeds": [0]},
        {"arms": ["agg"], "rates": ["best"], "seeds": [2]},
    ]
    (bench.RESULTS / "cells").mkdir(parents=True)
    for rate, last, validation in ((2e-3, 1.0, 3.0), (4e-3, 2.0, 2.5)):
        result = {"losses": [[24, last]], "config": CONFIG, "diverged": False, "validation_loss": validation}
        cell_of(bench, rate=rate).result.write_text(json.dumps(result))
    assert [cell.name for cell in fill.cells(config)][-1] == "tiny-agg-0.004-2"  # by the validation loss
    assert {cell.batch for cell in fill.cells(config)} == {4}
    command: list[str] = []
    monkeypatch.setattr(fill.fill.subprocess, "Popen", lambda given, **more: command.extend(given))
    asked = translation("mt_train").parser().parse_args(["tiny.toml", "--work", str(tmp_path)])
    asked.threads = 1
    (tmp_path / "cells").mkdir()
    fill.fill.started(cell_of(bench), Path("tiny.toml"), asked, fill.HERE / "mt_train.py")
    assert command[1].endswith("experiments/translation/mt_train.py")
    assert command[2:9] == ["tiny.toml", "--arm", "agg", "--rate", "0.002", "--seed", "0"]


def test_tables_come_from_results_and_name_what_was_not_run(translation: Load, bench: Any, text: Any) -> None:
    measure, tables, cell = translation("mt_measure"), translation("mt_tables"), cell_of(bench, "mle")
    references = [line for name in ("one", "two") for line in text.lines(name, "de")]
    keys = ("mean_cosine", "mean_cosine_centred", "partition_isotropy", "partition_isotropy_centred")
    (bench.RESULTS / "cells").mkdir(parents=True)
    for arm, said in (("mle", [line[:-4] for line in references]), ("agg", references)):
        measured = {"documents": [[10, 5, 2, 0, 20.0, 15.0, 12.0, 0.0, 9.0, 6.0, 1.0, 1.0]], "ids": [60, 90, 40, 110]}
        measured |= {"median_count_of_rare": 3.0, "head": dict.fromkeys(keys, 0.5)} | measure.of_translations(
            said, text, CONFIG["measured"]
        )
        of = replace(cell, arm=arm)
        result = {"cell": asdict(of), "losses": [[24, 3.0]], "diverged": False, "seconds": 7.0, "measured": measured}
        result["targets_a_step"] = 31.5
        of.result.write_text(json.dumps(result))
    replace(cell, seed=1).result.write_text(json.dumps({"diverged": True}))
    said = tables.report(CONFIG | {"cells": [{"arms": ["mle", "agg", "column"], "rates": [2e-3], "seeds": [0, 1]}]})
    assert f"{47 / 17:.3f}" in said
    assert "tok:13a" in said
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in said.splitlines() if line.startswith("| ")}
    heads = rows["arm"]
    assert rows["AGG"][heads.index("BLEU one")] == "100.00"
    gain = 100 - float(sacrebleu.corpus_bleu([line[:-4] for line in references], [references]).score)
    assert rows["AGG"][heads.index("BLEU less MLE")].startswith(f"{gain:+.2f} (")
    assert rows["AGG"][heads.index("on ids without targets")] == "5.88%"  # 1 of 17
    assert rows["second moment a column"][1] == "not run"
    assert rows["tiny-mle-0.002-1"][1] == "diverged"
    assert rows["tiny-column-0.002-0"][1] == "not run"


def test_the_kept_table_is_what_the_kept_results_say(translation: Load) -> None:
    tables = translation("mt_tables")
    config = tables.one_cell.read_config(tables.HERE / "multi30k.toml")
    assert tables.report(config) == (tables.RESULTS / "multi30k.md").read_text()


@pytest.mark.usefixtures("translation")
def test_the_kept_table_of_claims_is_what_the_kept_results_say() -> None:
    script = load_script(ROOT / "papers.py")
    assert script.report() == (ROOT / "papers.md").read_text()
