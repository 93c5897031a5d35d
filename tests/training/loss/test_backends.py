"""What other packages compute is gated rightly; what a backend cannot do is refused; the kernels compile."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rows.reading import refuses
from uncone import InputError
from uncone.training.loss import wrapped
from uncone.training.loss.loss import linear_cross_entropy
from uncone.training.loss.options import CrossEntropyOptions

from .backends import GATES, OPTIONS, a_problem, compare, gate_of
from .dense import logits, losses
from .test_exactness import of_loss, problem

Tensor = torch.Tensor
TORCH = CrossEntropyOptions(backend="wrap:torch")
CCE = CrossEntropyOptions(backend="wrap:cce")


def _stock(h: Tensor, w: Tensor, y: Tensor, bias: Tensor | None, options: CrossEntropyOptions) -> Tensor:
    """A kernel with every option: the definition, differentiated by autograd. The scale is in h already."""
    values = losses(logits(h, w, bias, replace(options, logit_scale=1.0, num_items=None)), y, options)
    return values if options.reduction == "none" else values.sum()


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_kernel_with_every_option_is_gated_as_defined(options: str, gate: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(wrapped, "_torch", _stock)
    monkeypatch.setattr(wrapped, "_LACKS", {"wrap:torch": ()})
    chosen = replace(TORCH, **OPTIONS[options])
    compare(chosen, gate_of(gate), a_problem(torch.float64), with_bias=options != "items", exact=True)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    "options",
    [{}, {"reduction": "sum", "chunk": 4}, {"reduction": "none"}, {"num_items": 50.0, "logit_scale": -0.7}],
    ids=str,
)
def test_torch(options: dict[str, Any], gate: str) -> None:
    compare(replace(TORCH, **options), gate_of(gate), a_problem(torch.float64), exact=True)
    compare(replace(TORCH, **options), gate_of(gate), a_problem(torch.float32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_torch_with_narrow_inputs(dtype: torch.dtype) -> None:
    compare(TORCH, gate_of("some rare"), a_problem(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"num_items": 70_000.0}], ids=str)
@pytest.mark.parametrize("backend", ["chunk", "wrap:torch"])
def test_the_sum_of_many_narrow_losses(backend: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    """More targets and a larger sum than float16 has numbers."""
    hidden, weight, _, labels = (
        t.to(dtype) if t.is_floating_point() else t for t in problem(n=66_000, d=4, v=9, dtype=torch.float32)
    )
    found = of_loss(hidden, weight, labels, backend=backend, **options)
    known = of_loss(hidden.double(), weight.double(), labels, **options)
    assert found[0].dtype == torch.float32
    for mine, exact in zip([found[0], *found[1]], [known[0], *known[1]], strict=True):
        assert float((mine.double() - exact).norm()) <= 4 * torch.finfo(dtype).eps * float(exact.norm())


@pytest.fixture
def _uncompiled() -> Iterator[None]:
    """What cut-cross-entropy runs on the CPU, without waiting for its compilation."""
    pytest.importorskip("cut_cross_entropy", reason="the extra [cce] is not installed")
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.usefixtures("_uncompiled")
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    "options", [{}, {"reduction": "none", "softcap": 1.5}, {"reduction": "sum", "logit_scale": 0.3}], ids=str
)
def test_cut_cross_entropy(options: dict[str, Any], gate: str) -> None:
    for dtype in (torch.float32, torch.float16):
        compare(replace(CCE, **options), gate_of(gate), a_problem(dtype), with_bias=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute of a Tensor")  # the compiler's
def test_cut_cross_entropy_compiled() -> None:
    pytest.importorskip("cut_cross_entropy", reason="the extra [cce] is not installed")
    compare(replace(CCE, softcap=1.5), gate_of("some rare"), a_problem(torch.float32), with_bias=False)


@pytest.mark.slow
def test_interpreted_kernels(tmp_path: Path) -> None:
    """In a process of their own: Triton reads the variable when it is imported."""
    for package in ("triton", "liger_kernel"):
        pytest.importorskip(package, reason="the extras [triton] and [liger] are not installed")
    tests, root = Path(__file__).with_name("interpreted.py"), Path(__file__).parents[3]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_kernels_compile_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the machine code: nothing is run, and no GPU is needed."""
    triton = pytest.importorskip("triton", reason="the extra [triton] is not installed")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from uncone.training.loss import kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = {"z_ptr": "*bf16", "labels_ptr": "*i64", "bias_ptr": "*fp32", "factors_ptr": "*fp32", "losses_ptr": "*fp32"}
    types |= {"classes_ptr": "*fp32", "notes_ptr": "*fp32"}
    types |= {"row_stride": "i32", "columns": "i32", "d_ptr": "*bf16"}
    types |= {"cap": "fp32", "smoothing": "fp32", "z_loss": "fp32"}
    given = {"CAPPED": True, "SMOOTHED": True, "WRITE": True, "BLOCK": 8192}
    nothing = given | {"CAPPED": False, "SMOOTHED": False, "bias_ptr": None, "factors_ptr": None}
    weighted = given | {"SMOOTHED": False}
    nothing |= {"classes_ptr": None, "notes_ptr": None}
    of_loss = [(kernels.differentiate, values) for values in (given, weighted, nothing)]
    for kernel, values in (*of_loss, (kernels._gate, given)):
        names = {name: "constexpr" if name in values else types[name] for name in kernel.arg_names}
        source = ASTSource(kernel, names, {name: values[name] for name in names if name in values})
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 16}).asm["cubin"]


@pytest.mark.slow
def test_the_benchmark_for_a_gpu_runs() -> None:
    script = Path(__file__).parents[3] / "benchmarks" / "bench_cross_entropy_gpu.py"
    command, env = [sys.executable, str(script), "--tiny", "--repeats", "1"], {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    table = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    measured = {row[0].removeprefix("| ") for row in table if row[2]}
    assert measured >= {"chunk, plain", "chunk, gated", "torch linear_cross_entropy, chunked", "wrap:torch, gated"}
    assert len(table) == 14


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"backend": "wrap:torch", "label_smoothing": 0.1}, r"expected label_smoothing=0\.0 with .* 'wrap:torch'"),
            ({"backend": "wrap:torch", "softcap": 30.0}, "expected softcap=None with the backend 'wrap:torch'"),
            (
                {"backend": "wrap:cce", "z_loss": 0.1},
                r"expected z_loss=0\.0 with .* 'wrap:cce'.*got 0\.1: use backend=",
            ),
            ({"backend": "wrap:liger", "chunk": 5}, "expected chunk=None with the backend 'wrap:liger'"),
            ({"backend": "wrap:cce"}, r"expected float32, bfloat16 or float16 with .* 'wrap:cce', got torch\.float64"),
        ],
    )
    def test_what_a_kernel_lacks(self, options: dict[str, Any], message: str) -> None:
        hidden, weight, _, labels = problem()
        refuses(message, linear_cross_entropy, hidden, weight, labels, options=CrossEntropyOptions(**options))

    def test_a_backend_that_there_is_not(self) -> None:
        said = r"expected a backend among chunk, triton, .*, got 'cuda': use one of them"
        refuses(said, CrossEntropyOptions, backend="cuda")

    @pytest.mark.parametrize("backend", ["triton", "wrap:liger"])
    def test_the_cpu(self, backend: str) -> None:
        pytest.importorskip("triton" if backend == "triton" else "liger_kernel", reason="the extra is not installed")
        hidden, weight, _, labels = problem(dtype=torch.float32)
        said = f"expected tensors on a GPU with the backend '{backend}', got cpu: move them"
        refuses(said, linear_cross_entropy, hidden, weight, labels, options=CrossEntropyOptions(backend=backend))

    @pytest.mark.parametrize(
        ("backend", "extra", "package"),
        [("triton",) * 3, ("wrap:liger", "liger", "liger_kernel"), ("wrap:cce", "cce", "cut_cross_entropy")],
    )
    def test_a_missing_package(self, backend: str, extra: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
        hidden, weight, _, labels = problem(dtype=torch.float32)
        for module in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(sys.modules, "uncone.training.loss.kernels", raising=False)
        monkeypatch.delattr("uncone.training.loss.kernels", raising=False)
        said = rf"expected the package {package} for the backend .*pip install 'uncone\[{extra}\]'"
        refuses(said, linear_cross_entropy, hidden, weight, labels, options=CrossEntropyOptions(backend=backend))

    def test_an_older_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(torch.nn.functional, "linear_cross_entropy")
        hidden, weight, _, labels = problem()
        with pytest.raises(InputError, match=r"expected torch of at least 2\.13 for the backend 'wrap:torch'"):
            linear_cross_entropy(hidden, weight, labels, options=TORCH)

    def test_an_older_liger(self, monkeypatch: pytest.MonkeyPatch) -> None:
        name = "liger_kernel.ops.fused_linear_cross_entropy"
        stock = pytest.importorskip(name, reason="the extra [liger] is not installed")
        monkeypatch.setattr(stock, "fused_linear_cross_entropy_forward", lambda _input, weight: None)
        h, w, y = torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(2, dtype=torch.int64)
        refuses(r"expected liger-kernel of at least 0\.8\.2", wrapped._liger, h, w, y, None, CrossEntropyOptions())

    def test_a_bias_where_there_is_none(self) -> None:
        cce = pytest.importorskip("cut_cross_entropy", reason="the extra [cce] is not installed")
        if cce.__version__ != "25.1.1":
            pytest.skip("a version with a bias")
        hidden, weight, bias, labels = problem(dtype=torch.float32)
        with pytest.raises(InputError, match="expected no bias with the backend 'wrap:cce'"):
            linear_cross_entropy(hidden, weight, labels, bias=bias, options=CCE)


def test_cut_cross_entropy_never_filters() -> None:
    gpu = torch.device("cuda")
    new = wrapped.without_filter(lambda e, c, y, *, filter_eps, filter_c_grad, impl: torch.zeros(()), gpu)
    old = wrapped.without_filter(lambda e, c, y, *, filter_eps, impl: torch.zeros(()), gpu)
    assert (new, old) == ({"impl": "cce_exact"}, {"impl": "cce", "filter_eps": None})
    with pytest.raises(InputError, match=r"whose gradient filter \(filter_eps\) can be turned off"):
        wrapped.without_filter(lambda e, c, y: torch.zeros(()), gpu)
