"""Losses of a language model by the frequency of tokens, against slow loops over the model's own logits."""

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra [hf] is not installed")

import torch
from hypothesis import given
from hypothesis import strategies as st

import uncone
from tests.edits.language_models import saved
from uncone import InputError, UnsupportedModel
from uncone.evaluation.language_model.continuations import distinct, repeated_4
from uncone.evaluation.language_model.last_words import read_passages
from uncone.evaluation.language_model.scores import by_ids, by_mass, repeated

WORDS = [
    "the",
    "of",
    "a",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "mat",
    "rug",
    "red",
    "blue",
    "old",
    "new",
    "big",
    "small",
    "saw",
    "heard",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama whose tokenizer has a token for each word."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = saved(tmp_path_factory.mktemp("lm"), "LlamaForCausalLM")
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(["<unk>", *WORDS])}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    for old in folder.glob("token*"):
        old.unlink()
    made.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def texts() -> list[str]:
    random = np.random.default_rng(0)
    weights = 1 / np.arange(1, len(WORDS) + 1)
    return [" ".join(random.choice(WORDS, size=15, p=weights / weights.sum())) for _ in range(30)]


@pytest.fixture(scope="module")
def counts(model: Path, texts: list[str]) -> np.ndarray:
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    found, of = np.zeros(size, np.int64), Counter(" ".join(texts).split())
    for place, word in enumerate(WORDS, 1):
        found[place] = of[word]
    return found


@pytest.fixture(scope="module")
def evaluation(model: Path, texts: list[str], counts: np.ndarray) -> Any:
    return uncone.evaluate_language_model(model, texts, counts=counts, continuations=4)


def _logs(model: Path, texts: list[str]) -> list[tuple[list[int], torch.Tensor]]:
    """Each text's ids, and the log-probabilities at each but the last."""
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model).eval()
    found = []
    for text in texts:
        ids = [1 + WORDS.index(word) for word in text.split()]
        with torch.no_grad():
            found.append((ids, loaded(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)))
    return found


def test_losses_and_shares_are_those_of_a_loop(
    evaluation: Any, model: Path, texts: list[str], counts: np.ndarray
) -> None:
    cut = by_ids(counts)
    loss, mass, of_targets, before, best = (Counter[int]() for _ in range(5))
    n_before, total, n = Counter[int](), 0.0, 0
    likeliest = set[int]()
    for ids, logs in _logs(model, texts):
        for i, target in enumerate(ids[1:]):
            group, one = int(cut[target]), -float(logs[i, target])
            loss[group] += one
            of_targets[group] += 1
            before[int(cut[ids[i]])] += one
            n_before[int(cut[ids[i]])] += 1
            for g in range(4):
                mass[g] += float(logs[i].exp()[torch.from_numpy(cut == g)].sum())
            likeliest.add(int(logs[i].argmax()))
            total, n = total + one, n + 1
    for token in likeliest:
        best[int(cut[token])] += 1
    assert evaluation.targets == n
    assert evaluation.loss.value == pytest.approx(total / n, rel=1e-5)
    assert evaluation.perplexity == pytest.approx(math.exp(total / n), rel=1e-4)
    names = ("frequent", "medium", "rare", "never")
    for group in (one for one in evaluation.groups if one.by == "ids"):
        g = names.index(group.name)
        assert group.targets == of_targets[g]
        assert group.ids == int((cut == g).sum())
        assert group.predicted == pytest.approx(mass[g] / n, rel=1e-4)
        assert group.unique_predicted == best[g]
        if group.targets:
            assert group.loss.value == pytest.approx(loss[g] / of_targets[g], rel=1e-5)
            assert group.log_ratio.value == pytest.approx(math.log(mass[g] / of_targets[g]), abs=1e-4)
            assert group.loss.low <= group.loss.value <= group.loss.high
    for group in (one for one in evaluation.groups if one.by == "input" and one.targets):
        g = names.index(group.name)
        assert (group.targets, group.log_ratio) == (n_before[g], None)
        assert group.loss.value == pytest.approx(before[g] / n_before[g], rel=1e-5)


def test_repetition_is_that_of_a_loop(evaluation: Any, model: Path, texts: list[str]) -> None:
    again, wrong, own, n = 0, 0, 0, 0
    for ids, logs in _logs(model, texts):
        for i, target in enumerate(ids[1:]):
            best, seen = int(logs[i].argmax()), set(ids[: i + 1])
            again += best in seen
            wrong += best in seen and best != target
            own += target in seen
            n += 1
    of_model, of_text = evaluation.repetition
    assert (of_model.repeated, of_model.wrong) == pytest.approx((again / n, wrong / n))
    assert of_text.repeated == pytest.approx(own / n)
    assert of_text.wrong is None


def test_continuations_are_those_of_the_likeliest_tokens(evaluation: Any, model: Path, texts: list[str]) -> None:
    from transformers import AutoModelForCausalLM

    loaded, made = AutoModelForCausalLM.from_pretrained(model).eval(), []
    for place in (0, 7, 15, 22):
        ids = [1 + WORDS.index(word) for word in texts[place].split()][:14]
        given = ids[: len(ids) // 3]
        while len(given) < len(ids):
            with torch.no_grad():
                given.append(int(loaded(torch.tensor([given])).logits[0, -1].argmax()))
        made.append(given[len(ids) // 3 :])
    assert evaluation.repetition[0].distinct == pytest.approx(distinct(made))
    assert evaluation.repetition[0].repeated_4 == pytest.approx(repeated_4(made))


@given(st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=5))
def test_different_grams(sequences: list[list[int]]) -> None:
    for n, share in distinct(sequences).items():
        k = int(n)
        grams = [tuple(one[i : i + k]) for one in sequences for i in range(len(one) - k + 1)]
        assert share == len(set(grams)) / len(grams)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 1)), min_size=1, max_size=30))
def test_repeated_is_a_loop_within_windows(rows: list[tuple[int, int, int]]) -> None:
    tokens, inputs, windows = (np.array(column) for column in zip(*rows, strict=True))
    windows = np.sort(windows)
    expected = [
        any(tokens[i] == inputs[j] and windows[i] == windows[j] for j in range(i + 1)) for i in range(len(tokens))
    ]
    assert repeated(tokens, inputs, windows).tolist() == expected


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=60).filter(any))
def test_equal_masses_are_as_near_as_whole_ids_allow(of: list[int]) -> None:
    counts = np.array(of)
    cut, total = by_mass(counts), counts.sum()
    assert (cut[counts == 0] == 3).all()
    assert (cut[counts > 0] < 3).all()
    order = np.argsort(-counts, kind="stable")
    assert (np.diff(cut[order][counts[order] > 0]) >= 0).all()
    for part in range(3):
        assert abs(int(counts[cut <= part].sum()) - (part + 1) * total / 3) <= counts.max() / 2 + 1e-9 or part == 2


def test_shares_of_ids_are_the_papers() -> None:
    counts = np.arange(1, 1001)
    sizes = np.bincount(by_ids(counts), minlength=4)
    assert sizes.tolist() == [290, 520, 190, 0]


def test_intervals_hold_a_known_loss() -> None:
    """Of tokens whose losses are independent in documents, with a document's own level."""
    from uncone.evaluation.language_model.evaluate_language_model import _Resampled

    random, inside = np.random.default_rng(1), 0
    for _ in range(200):
        blocks = np.repeat(np.arange(40), 25)
        loss = 3 + random.normal(size=40)[blocks] + random.normal(size=1000)
        found = _Resampled(blocks, 0).mean(loss)
        inside += found.low <= 3 <= found.high
    assert 0.89 <= inside / 200 <= 0.99


def test_last_words_are_those_of_a_loop(model: Path, tmp_path: Path) -> None:
    passages = ["the cat sat on a rug", "a dog ran", "the old cat saw the big dog"]
    plain, lines = tmp_path / "p.txt", tmp_path / "p.jsonl"
    plain.write_text("\n".join(passages) + "\n")
    lines.write_text("".join(json.dumps({"text": one}) + "\n" for one in passages))
    assert read_passages(plain) == read_passages(lines) == passages
    found = uncone.evaluate_language_model(model, passages, data=lines, continuations=0)
    losses, right = [], []
    for ids, logs in _logs(model, passages):
        losses.append(-float(logs[-1, ids[-1]]))
        right.append(int(logs[-1].argmax()) == ids[-1])
    assert found.last_words is not None
    assert (found.last_words.n, found.last_words.accuracy.value) == (3, np.mean(right))
    assert found.last_words.loss.value == pytest.approx(np.mean(losses), rel=1e-5)


def test_a_word_of_several_tokens_counts_whole(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = saved(tmp_path / "lm", "LlamaForCausalLM")
    made = Tokenizer(models.BPE({"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4}, [("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.save(str(folder / "tokenizer.json"))
    (tmp_path / "p.txt").write_text("ab abc\nc ab cab\n")
    found = uncone.evaluate_language_model(
        folder, ["ab abc", "c ab cab"], data=tmp_path / "p.txt", continuations=0
    ).last_words
    from transformers import AutoModelForCausalLM

    loaded, losses = AutoModelForCausalLM.from_pretrained(folder).eval(), []
    for ids, k in (([4, 3, 4, 2], 3), ([2, 3, 4, 3, 2, 4], 3)):  # the space is a token that reaches not into the word
        with torch.no_grad():
            logs = loaded(torch.tensor([ids])).logits[0].log_softmax(-1)
        begins = len(ids) - k + 1
        losses.append(-sum(float(logs[i - 1, ids[i]]) for i in range(begins, len(ids))))
    assert found is not None
    assert found.loss.value == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_command_and_the_task_are_the_function(
    evaluation: Any, model: Path, texts: list[str], counts: np.ndarray
) -> None:
    found = uncone.evaluate(str(model), task="lm", text=texts, counts=counts)
    assert found.groups == evaluation.groups  # type: ignore[union-attr]
    assert "perplexity" in evaluation.verdict
    assert "rare" in evaluation.verdict
    read = type(evaluation).from_json(evaluation.to_json())
    assert read == evaluation
    assert evaluation.to_rows()[0]["group"] == "frequent"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_the_losses_are_those_of_a_cpu(evaluation: Any, model: Path, texts: list[str], counts: Any) -> None:
    found = uncone.evaluate_language_model(model, texts, counts=counts, device="cuda")
    for ours, known in zip(found.groups, evaluation.groups, strict=True):
        assert (ours.by, ours.name, ours.targets) == (known.by, known.name, known.targets)
        if known.loss is not None:
            assert ours.loss.value == pytest.approx(known.loss.value, rel=1e-4)


def test_a_narrow_dtype_is_near(evaluation: Any, model: Path, texts: list[str], counts: Any) -> None:
    found = uncone.evaluate_language_model(model, texts, counts=counts, dtype="bfloat16")
    assert found.loss.value == pytest.approx(evaluation.loss.value, rel=0.01)
    assert found.loss.value != evaluation.loss.value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": None}, "--text"),
        ({"method": ["center"]}, "method"),
        ({"cache": "folder"}, "cache"),
        ({"counts": [1, 2]}, "counts"),
        ({"device": "moon"}, "moon"),
    ],
)
def test_what_does_not_belong_is_refused(model: Path, texts: list[str], given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        uncone.evaluate(str(model), task="lm", **{"text": texts} | given)


def test_a_text_without_the_task_is_refused(model: Path, texts: list[str]) -> None:
    with pytest.raises(InputError, match="the task lm alone"):
        uncone.evaluate(str(model), task="wordsim", text=texts)
    with pytest.raises(InputError, match="device with the task lm alone, got it with no task"):
        uncone.evaluate(str(model), device="cpu")


def test_odd_input(model: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    with pytest.raises(InputError, match="three tokens"):
        uncone.evaluate_language_model(model, empty)
    with pytest.raises(InputError, match="passages"):
        uncone.evaluate_language_model(model, ["the cat sat"], data=empty)
    with pytest.raises(InputError, match="int8"):
        uncone.evaluate_language_model(model, ["the cat sat"], dtype="int8")
    one = tmp_path / "one.txt"
    one.write_text("the cat\nword\n")
    with pytest.raises(InputError, match="line 2"):
        uncone.evaluate_language_model(model, ["the cat sat"], data=one)
    other = saved(tmp_path / "marian", "MarianMTModel")
    shutil.copy(model / "tokenizer.json", other)
    with pytest.raises(UnsupportedModel, match="a decoder"):
        uncone.evaluate_language_model(other, ["the cat sat"])


def test_a_short_text_has_no_intervals_and_says_so(model: Path, texts: list[str]) -> None:
    short = uncone.evaluate_language_model(model, texts[:3], continuations=0)
    assert short.intervals == "No intervals: they need 10 windows, and the text has 3."
    assert short.loss.low is short.loss.high is None


def test_a_text_that_is_cut_is_said(model: Path, texts: list[str]) -> None:
    cut = uncone.evaluate_language_model(model, texts, most=50, continuations=0)
    assert cut.targets == 50
    assert "Only the first 50 tokens were predicted" in cut.notes[0]
    assert uncone.evaluate_language_model(model, texts, continuations=0).notes == ()


def test_a_text_of_one_document_is_resampled_by_windows(model: Path, texts: list[str], tmp_path: Path) -> None:
    whole = tmp_path / "whole.txt"
    whole.write_text(" ".join(texts * 40))
    found = uncone.evaluate_language_model(model, whole, continuations=0)
    assert "windows of the text" in found.intervals
    assert found.loss.low is not None
    assert found.groups == ()
    assert found.verdict.endswith(".")
