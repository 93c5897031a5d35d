"""The triton backend: the chunks of `chunked`, with all that is element by element in one program a row."""

import torch

from uncone.cross_entropy import chunked
from uncone.cross_entropy.chunked import Sweep, add_product
from uncone.cross_entropy.problem import Problem
from uncone.errors import InputError
from uncone.memory import uninitialised

Tensor = torch.Tensor
_BUFFER_BYTES = 128 * 2**20
_FEWEST = 64


def cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, problem: Problem) -> Tensor:
    """The loss of hidden (N, D) as a scalar, or (N,) with the reduction "none"."""
    try:
        from uncone.cross_entropy import kernels
    except ModuleNotFoundError as error:
        raise InputError(
            f"expected the package {error.name} for the backend 'triton', found none: pip install "
            "'uncone[triton]'"
        ) from error
    refuse_cpu(kernels.differentiate, hidden.device, "triton")
    if problem.dtype == torch.float64:
        raise InputError(
            "expected float32, bfloat16 or float16 with the backend 'triton', got torch.float64: it computes "
            "in float32; use backend='chunk'"
        )
    loss: Tensor = chunked.cross_entropy(hidden, weight, bias, problem, FusedSweep)
    return loss


def refuse_cpu(kernel: object, device: torch.device, backend: str) -> None:
    """Raise where a compiled Triton kernel would get tensors on the CPU; an interpreted one runs there."""
    import triton

    if device.type == "cpu" and isinstance(kernel, triton.JITFunction):
        raise InputError(
            f"expected tensors on a GPU with the backend {backend!r}, got cpu: move them there, or use "
            "backend='chunk' (for tests, TRITON_INTERPRET=1, set before triton is imported, runs its kernels "
            "on the CPU, slowly)"
        )


class FusedSweep(Sweep):
    """Logits in the dtype of the products; the kernels replace them by the gradient."""

    def _allocate(self, most: int) -> None:
        v, d = self._weight.shape
        # The head's gradient is read and written once a chunk: chunks grow with it, to half of the head.
        fitting = max(_FEWEST, _BUFFER_BYTES // (v * self._weight.itemsize) // _FEWEST * _FEWEST, d // 2)
        self._chunk = max(1, min(self._options.chunk or fitting, most))
        self._logits = uninitialised((self._chunk, v), self._weight.dtype, self._weight.device)

    def _add(self, rows: Tensor, gate: Tensor | None) -> None:
        from uncone.cross_entropy import kernels

        options, y, h = self._options, self._problem.labels[rows], self._hidden[rows]
        h = h if options.logit_scale == 1 else h * options.logit_scale
        d = torch.mm(h, self._weight.T, out=self._logits[: len(rows)])
        factors = None if self._factors is None else self._factors[rows]
        wanted = any(self._needs) or self._gated is not None
        self._losses[rows] = kernels.losses(d, y, self._bias, factors, options, wanted)
        if self._gated is not None:
            self._gated.add(d, *self._shard.place(y[:, None]), rare=gate is not None)
        if self._of_bias is not None:
            self._of_bias += d.sum(dim=0, dtype=self._exact)
        if self._of_hidden is not None:
            self._of_hidden[rows] = torch.mm(d, self._weight).to(self._exact)
        if self._of_weight is not None:
            if gate is not None:
                kernels.gate(d, y, gate)
            add_product(self._of_weight, d.T, h, begun=self._begun)
            self._begun = True
