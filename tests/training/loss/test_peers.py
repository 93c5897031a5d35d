"""The cases that the suites of torch, cut-cross-entropy and Liger go through, by every backend that a CPU runs, against torch in float64."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

import pytest
import torch

from uncone.training.loss import wrapped
from uncone.training.loss.loss import linear_cross_entropy
from uncone.training.loss.options import CrossEntropyOptions

from .backends import FLOOR
from .test_exactness import gradients

Tensor = torch.Tensor
NARROW = [torch.float32, torch.bfloat16, torch.float16]
BACKENDS = {"chunk": [torch.float64, *NARROW], "wrap:torch": [torch.float64, *NARROW], "wrap:cce": NARROW}
SIZES = {"one target": (1, 1, 8, 5), "all ignored": (2, 6, 7, 40), "odd": (3, 11, 16, 129), "chunks": (4, 50, 32, 131)}
"""Sequences, targets in each, D and V."""
SAMPLE = 12
"""Cases that the fast suite takes of each backend, dtype and reduction."""


@dataclass(frozen=True)
class Case:
    size: str
    ignored: str
    """Which label is ignored: "none", "negative" or "positive", an id of the vocabulary, or the usual -100."""
    shifted: bool
    """Whether the labels are those of the next position: views that are not contiguous."""
    softcap: float | None
    smoothing: float
    biased: bool

    def options(self, **more: Any) -> CrossEntropyOptions:
        more["chunk"] = 64 if self.size == "chunks" and more["backend"] != "wrap:cce" else None
        own = {"ignore_index": self.ignore_index, "softcap": self.softcap, "label_smoothing": self.smoothing}
        return CrossEntropyOptions(**own, **more)

    @property
    def ignore_index(self) -> int | None:
        return {"none": None, "usual": -100, "negative": -1, "positive": SIZES[self.size][3] // 2}[self.ignored]

    def problem(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        (sequences, targets, d, v), random = SIZES[self.size], torch.Generator().manual_seed(len(self.size))
        length = targets + self.shifted
        shapes = ((sequences, length, d), (v, d), (v,))
        hidden, weight, bias = (torch.randn(*shape, generator=random).to(dtype) for shape in shapes)
        labels = torch.randint(0, v, (sequences, length), generator=random)
        if self.ignore_index is not None:
            share = {"one target": 0.0, "all ignored": 2.0}.get(self.size, 0.3)
            labels[torch.rand(labels.shape, generator=random) < share] = self.ignore_index
        return hidden, weight, bias, labels


IGNORED, BOTH = ("none", "usual", "negative", "positive"), (False, True)
CASES = [Case(*values) for values in product(SIZES, IGNORED, BOTH, (None, 2.0), (0.0, 0.1, 1.0), BOTH)]


def by_torch(h: Tensor, w: Tensor, b: Tensor | None, labels: Tensor, case: Case, reduction: str) -> Tensor:
    """The loss of all logits at once. The mean over no target is 0, where torch's is 0 / 0."""
    logits = torch.nn.functional.linear(h, w, b).flatten(0, -2)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logits = logits if case.softcap is None else case.softcap * torch.tanh(logits / case.softcap)
    ignored = -100 if case.ignore_index is None else case.ignore_index
    summed = "none" if reduction == "none" else "sum"
    options: dict[str, Any] = {"ignore_index": ignored, "label_smoothing": case.smoothing, "reduction": summed}
    values = torch.nn.functional.cross_entropy(logits, labels.flatten(), **options)
    if reduction == "none":
        return values.view(labels.shape)
    return values / (labels != ignored).sum().clamp(min=1) if reduction == "mean" else values


def check(case: Case, backend: str, dtype: torch.dtype, reduction: str) -> None:
    hidden, weight, bias, labels = case.problem(dtype)
    aligned = labels[:, 1:] if case.shifted else labels
    tensors = (hidden, weight, bias) if case.biased else (hidden, weight)
    options = case.options(backend=backend, reduction=reduction)

    def states(h: Tensor) -> Tensor:
        return h[:, :-1] if case.shifted else h

    def ours(h: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return linear_cross_entropy(states(h), w, aligned, bias=b, options=options)

    def definition(h: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return by_torch(states(h), w, b, aligned, case, reduction)

    def found(loss: Any, in_dtype: torch.dtype) -> list[Tensor]:
        each = torch.linspace(0.1, 1, aligned.numel()).view(aligned.shape)
        upstream = (each if reduction == "none" else torch.tensor(0.7)).to(torch.promote_types(in_dtype, torch.float32))
        value, grads = gradients(loss, *(t.to(in_dtype) for t in tensors), upstream=upstream)
        return [value.double(), *(g.double() for g in grads)]

    mine, naive, known = found(ours, dtype), found(definition, dtype), found(definition, torch.float64)
    for a, b, k in zip(mine, naive, known, strict=True):
        assert a.shape == k.shape
        error = float((a - k).norm())
        allowed = float((b - k).norm()) + FLOOR * torch.finfo(dtype).eps * float(k.norm())
        if dtype == torch.float64:  # the definition is the oracle then, and no less wrong
            allowed = 1e-13 * (1 + float(k.norm()))
        assert error <= allowed, (case, error, allowed)


def can(backend: str, case: Case) -> bool:
    """Whether the wrapped kernel has the case's options."""
    lacks = wrapped._LACKS.get(backend, ())
    lacking = (case.softcap is not None and "softcap" in lacks) or (case.smoothing and "label_smoothing" in lacks)
    return not (lacking or (case.biased and backend == "wrap:cce"))


@pytest.fixture
def _at_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """On one thread, as the problems are small, and without waiting for the compilation of what cut-cross-entropy runs on the CPU."""
    if request.node.callspec.params["backend"] == "wrap:cce":
        pytest.importorskip("cut_cross_entropy", reason="the extra [cce] is not installed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.compiler.set_stance("force_eager"):
        yield
    torch.set_num_threads(threads)


RUNS = [(backend, dtype) for backend, dtypes in BACKENDS.items() for dtype in dtypes]


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("backend", "dtype"), RUNS)
def test_some_cases(backend: str, dtype: torch.dtype, reduction: str) -> None:
    possible = [case for case in CASES if can(backend, case)]
    for case in Random(f"{backend} {dtype} {reduction}").sample(possible, SAMPLE):
        check(case, backend, dtype, reduction)


@pytest.mark.slow
@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("backend", "dtype"), RUNS)
def test_all_cases(backend: str, dtype: torch.dtype, reduction: str) -> None:
    for case in CASES:
        if can(backend, case):
            check(case, backend, dtype, reduction)
