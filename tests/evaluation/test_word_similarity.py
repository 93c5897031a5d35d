from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.word_tokenizers import PROBES, wordpiece
from uncone.errors import InputError
from uncone.evaluation.pairs import PairSet, read_word_sets
from uncone.evaluation.word_vocabulary import vocabulary_of
from uncone.evaluation.wordsim import word_similarity
from uncone.rows import as_rows

DATA = (Path(__file__).parents[2] / "../shared/data/wordsim").resolve()
WORDS = [*PROBES]


class Linear:
    """A stand-in for a fitted repair: y = (x - shift) @ weight."""

    def __init__(self, shift: torch.Tensor, weight: torch.Tensor | None = None) -> None:
        self.shift, self.weight = (None if one is None else one.numpy() for one in (shift, weight))

    def transform(self, x: Any) -> Any:
        y = x - self.shift.astype(x.dtype)
        return y if self.weight is None else y @ self.weight.astype(x.dtype)


def pairs(*given: tuple[str, str, float], name: str = "rw") -> PairSet:
    return PairSet(name, tuple((a, b) for a, b, _ in given), tuple(float(score) for *_, score in given))


def hand() -> tuple[torch.Tensor, list[str], PairSet]:
    """Cosines 1, 0, -1 and inner products 2, 0, -3 against gold 10, 5, 0."""
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, -3.0]])
    return x, ["a", "b", "c", "d"], pairs(("a", "b", 10), ("a", "c", 5), ("c", "d", 0))


def test_a_case_by_hand() -> None:
    x, labels, one = hand()
    found = word_similarity(x, vocabulary_of(labels), [one])
    scores = found.scores["rw"]["original"]
    assert (scores.cosine.tolist(), scores.inner.tolist()) == ([1, 0, -1], [2, 0, -3])
    numbers = found.results()["rw"]["original"]
    assert numbers["pearson_cosine"] == pytest.approx(100)
    # gold about its mean: 5, 0, -5; inner about -1/3: 7/3, 1/3, -8/3
    assert numbers["pearson_inner"] == pytest.approx(100 * 25 / np.sqrt(50 * 114 / 9))
    assert numbers["spearman_inner"] == pytest.approx(100)
    assert (numbers["n"], numbers["pairs"]) == (3, 3)


def test_the_paper_keeps_single_tokens_and_the_field_takes_means_of_pieces() -> None:
    """river = r ##i ##v ##e ##r here: five pieces, and the word's vector is their mean."""
    tokenizer = wordpiece(["the", *PROBES])
    x = torch.randn(tokenizer.get_vocab_size(), 6, generator=torch.Generator().manual_seed(3))
    given = (("water", "river", 9), ("cat", "dog", 7), ("cat", "naïve", 1), ("small", "house", 2), ("dog", "world", 0))
    one = pairs(*given)
    paper = word_similarity(x, vocabulary_of(tokenizer), [one]).scores["rw"]["original"]
    field = word_similarity(x, vocabulary_of(tokenizer), [one], protocol="field").scores["rw"]["original"]
    assert paper.gold.tolist() == [7, 2, 0]
    assert field.gold.tolist() == [9, 7, 2, 0]
    pieces = tokenizer.encode("river", add_special_tokens=False).ids
    assert len(pieces) == 5
    river, water = x[pieces].mean(0), x[tokenizer.token_to_id("water")]
    assert field.cosine[0] == pytest.approx(float(torch.cosine_similarity(river, water, dim=0)), abs=1e-6)
    assert field.inner[0] == pytest.approx(float(river @ water), abs=1e-6)


def test_it_is_the_table_that_is_repaired_and_not_the_words() -> None:
    """For a repair that is not affine, the mean of repaired pieces is not the repaired mean."""

    class Unit:
        def transform(self, x: Any) -> Any:
            return x / np.linalg.norm(x, axis=1, keepdims=True)

    tokenizer = wordpiece(["the", *PROBES])
    x = torch.randn(tokenizer.get_vocab_size(), 4, generator=torch.Generator().manual_seed(4))
    one = pairs(("water", "river", 9), ("cat", "rivers", 7))
    found = word_similarity(x, vocabulary_of(tokenizer), [one], {"unit": Unit()}, protocol="field").scores["rw"]["unit"]
    pieces = tokenizer.encode("river", add_special_tokens=False).ids
    river = torch.stack([x[piece] / x[piece].norm() for piece in pieces]).mean(0)
    water = x[tokenizer.token_to_id("water")]
    assert found.inner[0] == pytest.approx(float(river @ water / water.norm()), abs=1e-6)


@given(st.integers(0, 2**31), st.floats(0.1, 10))
@settings(deadline=None, max_examples=30)
def test_what_scaling_and_rotation_leave_as_it_is(seed: int, scale: float) -> None:
    x = torch.randn(len(WORDS), 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    square = torch.randn(5, 5, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    rotation = torch.linalg.qr(square)[0]
    one = pairs(*[(a, b, float(at)) for at, (a, b) in enumerate(pairwise(WORDS))])
    repairs = {"turned": Linear(torch.zeros(5), rotation * scale)}
    numbers = word_similarity(x, vocabulary_of(WORDS), [one], repairs).results()["rw"]
    for name in ("pearson_cosine", "pearson_inner", "spearman_cosine", "spearman_inner"):
        before, after = numbers["original"][name], numbers["turned"][name]
        assert after == pytest.approx(before, abs=1e-6)
        assert -100 <= before <= 100


def test_a_common_direction_is_what_hides_the_words_and_centring_brings_them_back() -> None:
    """Planted: gold is the inner product of the words without their common vector."""
    clean = torch.randn(len(WORDS), 8, generator=torch.Generator().manual_seed(5))
    shift = 30 * torch.ones(8)
    gold = [(a, b, float(clean[i] @ clean[j])) for i, a in enumerate(WORDS) for j, b in enumerate(WORDS) if i < j]
    repairs = {"center": Linear(shift)}
    numbers = word_similarity(clean + shift, vocabulary_of(WORDS), [pairs(*gold)], repairs).results()["rw"]
    assert numbers["center"]["pearson_inner"] == pytest.approx(100, abs=1e-3)
    assert float(numbers["original"]["pearson_inner"] or 0) < 60


def test_rows_are_read_once_whatever_the_number_of_repairs() -> None:
    x, labels, one = hand()
    rows = as_rows(x)
    taken = []
    take = rows.take
    rows.take = lambda indices: taken.append(indices.tolist()) or take(indices)
    word_similarity(rows, vocabulary_of(labels), [one], {str(k): Linear(torch.zeros(2)) for k in range(4)})
    assert taken == [[0, 1, 2, 3]]


def test_undefined_correlations_are_none_and_zero_rows_are_left_out() -> None:
    x, labels, _ = hand()
    x = torch.cat([x, torch.zeros(1, 2)])
    one = pairs(("a", "b", 10), ("a", "e", 5), ("b", "a", 5))
    found = word_similarity(x, vocabulary_of([*labels, "e"]), [one], {"zero": Linear(torch.tensor([1.0, 0.0]))})
    assert found.scores["rw"]["original"].gold.tolist() == [10, 5]
    undefined = dict.fromkeys(f"{kind}_{way}" for kind in ("pearson", "spearman") for way in ("cosine", "inner"))
    assert found.results()["rw"]["original"] == undefined | {"n": 2, "pairs": 3}
    assert np.isnan(found.scores["rw"]["zero"].cosine).all()  # the repair has made the row of "a" zero
    assert found.results()["rw"]["zero"]["pearson_cosine"] is None


def test_tokens_beyond_the_table_are_not_represented() -> None:
    x, labels, one = hand()
    assert word_similarity(x[:3], vocabulary_of(labels), [one]).results()["rw"]["original"]["n"] == 2


def test_what_is_refused() -> None:
    x, labels, one = hand()
    vocabulary = vocabulary_of(labels)
    with pytest.raises(InputError, match="expected a protocol out of paper, field, got 'pearson'"):
        word_similarity(x, vocabulary, [one], protocol="pearson")
    with pytest.raises(InputError, match="got 'original': it names the vectors as they are"):
        word_similarity(x, vocabulary, [one], {"original": Linear(torch.zeros(2))})
    with pytest.raises(InputError, match=r"got none in 1 pairs .*is this the table's own vocabulary"):
        word_similarity(x, vocabulary, [pairs(("x", "y", 1))])


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared word sets are not there")
@pytest.mark.parametrize("protocol", ["paper", "field"])
def test_minilm_against_a_slow_loop_with_other_libraries(minilm: Path, protocol: str) -> None:
    """transformers' tokenizer, SciPy's correlations and one pair after the other, by the released code's rules."""
    stats = pytest.importorskip("scipy.stats")
    transformers = pytest.importorskip("transformers")
    import uncone

    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    rows = uncone.open_rows(f"{minilm}#input")
    table = rows.read(0, rows.shape[0])
    sets = read_word_sets(DATA, sets=("rw", "wordsim_rel"))
    found = word_similarity(rows, vocabulary_of(minilm), sets, protocol=protocol).results()
    for one in sets:
        gold, cosine, inner = _slow(one, tokenizer, table, protocol)
        numbers = found[one.name]["original"]
        assert numbers["n"] == len(gold)
        for kind, function in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
            assert numbers[f"{kind}_cosine"] == pytest.approx(100 * function(cosine, gold)[0], abs=1e-3)
            assert numbers[f"{kind}_inner"] == pytest.approx(100 * function(inner, gold)[0], abs=1e-3)


def _slow(one: PairSet, tokenizer: Any, table: Any, protocol: str) -> tuple[list[float], list[float], list[float]]:
    gold, cosine, inner = list[float](), list[float](), list[float]()
    for (first, second), score in zip(one.pairs, one.gold, strict=True):
        ids = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(word)) for word in (first, second)]
        is_split = protocol == "paper" and any(len(each) != 1 for each in ids)
        if is_split or any(tokenizer.unk_token_id in each for each in ids):
            continue
        left, right = (np.mean([table[index] for index in each], axis=0, dtype=np.float64) for each in ids)
        gold.append(score)
        inner.append(float(left @ right))
        cosine.append(float(left @ right / np.linalg.norm(left) / np.linalg.norm(right)))
    return gold, cosine, inner
