"""A file edited in many ways, by bytes and by fields: what must be refused, or read as it was."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.mutators import cut, cut_within, flip_bits, overwrite, safetensors_header, set_integer, splice
from tests.fuzz.trees import mutant
from uncone.rows.safetensors import to_bytes

_BYTES = (flip_bits, overwrite, cut, cut_within, splice, set_integer)


def edited(path: Path, times: int) -> Iterator[bytes]:
    """Other contents of the file: bytes changed, and fields of JSON changed and written again as a program would."""
    content = path.read_bytes()
    ways = (*_BYTES, _fields) if content.startswith(b"{") else (*_BYTES, safetensors_header, _tensors)
    for number in range(times):
        rng = random.Random(number)
        found = rng.choice(ways)(content, content[::-1], rng)
        if found != content:
            yield found


def _fields(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """A value in the record of one line is another."""
    lines = content.splitlines()
    at = rng.randrange(len(lines))
    line = json.loads(lines[at])
    line["record"] = mutant(line["record"], rng)
    lines[at] = json.dumps(line).encode("utf-8", "surrogatepass")
    return b"\n".join(lines) + b"\n"


def _tensors(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """A number of a tensor is another, or a tensor is that of another name."""
    import numpy as np
    from safetensors.numpy import load

    length = int.from_bytes(content[:8], "little")
    tensors, metadata = load(content), json.loads(content[8 : 8 + length])["__metadata__"]
    name = rng.choice([name for name, x in tensors.items() if x.size])
    x = tensors[name].copy()
    x.reshape(-1)[rng.randrange(x.size)] += rng.choice((1, 7, 2**20)) if x.dtype.kind != "u" else 1
    alike = [one for one, y in tensors.items() if (y.shape, y.dtype) == (x.shape, x.dtype)]
    tensors[name] = x if rng.random() < 0.7 else tensors[rng.choice(alike)]
    return to_bytes({name: np.ascontiguousarray(one) for name, one in tensors.items()}, metadata)
