"""A step of the optimiser of a token table: `TableAdam` against torch's AdamW, the bytes of its state, and centring."""

import torch
from measured import Row, run

from uncone import CenterRows, TableAdam
from uncone.training.optimisers.table_adam import KINDS

V, D = 50257, 768
SIZES: dict[str, int] = {}


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    moments = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    return sum(value.numel() * value.element_size() for value in moments)


def _row(name: str, make) -> Row:
    def prepare():
        random = torch.Generator().manual_seed(0)
        table = torch.randn(V, D, generator=random).mul_(0.02).requires_grad_()
        table.grad = torch.randn(V, D, generator=random).mul_(1e-3)
        optimizer = make([table])
        optimizer.step()
        SIZES[name] = _state_bytes(optimizer)
        return optimizer.step

    return Row(name, prepare)


def _head() -> torch.nn.Module:
    import transformers

    sizes = {
        "vocab_size": V,
        "hidden_size": D,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 8,
    }
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))


def _published():
    weight = _head().lm_head.weight

    def work() -> None:
        with torch.no_grad():
            weight.copy_(weight - torch.mean(weight, dim=0))

    return work


def _of_kind(kind: str):
    return lambda tables: TableAdam(tables, kind)


ROWS = [
    _row("torch AdamW, default on a CPU", torch.optim.AdamW),
    _row("torch AdamW, foreach=False, fused=False", lambda p: torch.optim.AdamW(p, foreach=False, fused=False)),
    _row("torch AdamW, foreach=True", lambda p: torch.optim.AdamW(p, foreach=True)),
    _row("torch AdamW, fused=True", lambda p: torch.optim.AdamW(p, fused=True)),
    *(_row(f'TableAdam "{kind}"', _of_kind(kind)) for kind in KINDS),
    Row("CenterRows", lambda: CenterRows(_head()).step),
    Row("centring as published: mean, difference, copy", _published),
]

if __name__ == "__main__":
    for row in ROWS[:8]:
        row.prepare()
    sizes = ", ".join(f"{name} {size:,}" for name, size in SIZES.items())
    run(
        __file__,
        f"One step of an optimiser of a table of {V} x {D} float32",
        ROWS,
        repeats=9,
        columns=[("default", ROWS[0].name), ("fused", ROWS[3].name)],
        notes=f"Bytes of state: {sizes}.",
    )
