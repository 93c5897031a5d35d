"""Which engine works on the parts of rows: this process, several processes of this machine, or Ray."""

from collections.abc import Iterator
from contextlib import contextmanager

from uncone.arguments import whole_number
from uncone.errors import InputError
from uncone.roles import EngineName
from uncone.rows.parts import Engine, InThisProcess


@contextmanager
def working(workers: int | None, engine: EngineName | None, address: str | None) -> Iterator[Engine | None]:
    """`engine_of`, whose processes end with the block."""
    made = engine_of(workers, engine, address)
    try:
        yield made
    finally:
        if made is not None:
            made.close()


def engine_of(workers: int | None, engine: EngineName | None, address: str | None) -> Engine | None:
    """None where no option is given. Raises InputError: options that exclude each other, Ray is not installed."""
    if engine not in (None, "processes", "ray"):
        raise InputError(f"expected the engine processes or ray, got {engine!r}: leave it out for this process")
    if workers is not None:
        whole_number(workers, "workers", 1, 4096)
    if address is not None and engine != "ray":
        raise InputError(f"expected --engine ray with --address {address}, got {engine or 'none'}: add it")
    if engine == "ray":
        from uncone.engines.ray import Ray

        return Ray(address, workers)
    if workers == 1:
        return InThisProcess()
    if workers is None and engine is None:
        return None
    from uncone.engines.processes import Processes

    return Processes(workers)
