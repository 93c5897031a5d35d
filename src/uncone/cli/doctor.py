"""What this installation can do: packages of each extra, the BLAS, memory, and the files that can be opened."""

import platform
import re
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, requires, version

from uncone.memory import free_bytes
from uncone.records.blocks import Bullets, Document, Heading, Row, Table, Text
from uncone.version import __version__

_WHAT_FOR = {
    "torch": "training, topology, edits with their proofs, PyTorch checkpoints",
    "hf": "texts run through transformers models",
    "sentence": "sentence encoders",
    "parquet": "Parquet files",
    "gguf": "GGUF models",
    "lance": "Lance datasets",
    "zst": "texts packed as .zst",
    "remote": "hf:// and https:// addresses",
    "s3": "s3:// addresses",
    "ray": "many machines",
    "evaluate": "search with Faiss, and its measures",
    "faiss": "Faiss transforms",
    "cluster": "clusters of hidden states, scikit-learn estimators",
    "topology": "barcodes and persistent entropy",
    "triton": "fast losses on a GPU",
    "liger": "Liger's loss for the gate",
    "cce": "cut cross-entropy for the gate",
    "plot": "charts with matplotlib",
    "demo": "the model of `make demo`",
}
"""What each extra adds."""
_FORMATS = (
    (".npy, .npz, .safetensors, word vectors", ()),
    (".parquet", ("pyarrow",)),
    (".gguf", ("gguf",)),
    (".lance", ("pylance",)),
    (".pt, .pth, .ckpt, .bin of PyTorch", ("torch",)),
    ("hf://, https://", ("httpx",)),
    ("s3://", ("s3fs",)),
)
"""Kinds of files and addresses, with the packages that open them."""
_REQUIRED = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?(.*)")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")


def doctor() -> None:
    """Show what this installation can do: which extras are missing, which BLAS computes, which files can be opened."""
    from uncone.report.terminal import print_document

    print_document(document())


def document() -> Document:
    extras = packages_of_extras()
    missing = {name: [one for one in packages if _version(one) is None] for name, packages in extras.items()}
    lacking = [name for name in _WHAT_FOR if missing.get(name)]
    verdict = f"uncone {__version__} is ready"
    if not extras:
        verdict += ". It was not installed as a package, so its extras are not known."
    else:
        verdict += f". These extras are not installed: {', '.join(lacking)}." if lacking else ", with every extra."
    formats = (
        names if all(map(_version, packages)) else f"{names} (needs {', '.join(packages)})"
        for names, packages in _FORMATS
    )
    return Document(
        "doctor",
        "doctor",
        (
            Heading(verdict, 1),
            Bullets(tuple(_machine())),
            Heading("Extras", 3),
            Table(("extra", "adds", "state"), tuple(_row(name, missing.get(name)) for name in _WHAT_FOR)),
            Heading("Files and addresses that can be opened", 3),
            Bullets(tuple(formats)),
            Text("Install an extra with pip install 'uncone[NAME]'.", "quiet"),
        ),
    )


def packages_of_extras() -> dict[str, list[str]]:
    """The packages of each extra, also through other extras; empty if uncone was not installed."""
    own, through = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    try:
        lines = requires("uncone") or []
    except PackageNotFoundError:
        lines = []
    for line in lines:
        match, extra = _REQUIRED.match(line), _EXTRA.search(line)
        if match is None or extra is None or ("platform_system" in line and platform.system() not in line):
            continue
        if match[1] == "uncone":
            through[extra[1]] += (match[2] or "").split(",")
        else:
            own[extra[1]].append(match[1])

    def whole(extra: str) -> list[str]:
        return [*own[extra], *(package for other in through[extra] for package in whole(other))]

    return {extra: list(dict.fromkeys(whole(extra))) for extra in {*own, *through}}


def _row(name: str, missing: list[str] | None) -> Row:
    state = "not known" if missing is None else f"missing: {', '.join(missing)}" if missing else "installed"
    return name, _WHAT_FOR[name], state


def _machine() -> list[str]:
    import numpy
    from threadpoolctl import threadpool_info

    pools = (pool for pool in threadpool_info() if pool["user_api"] == "blas")
    blas = next(
        (
            f"{p['internal_api']} {p['version']}, kernels {p.get('architecture')}, {p['num_threads']} threads"
            for p in pools
        ),
        "not known",
    )
    memory = free_bytes()
    return [
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        f"NumPy {numpy.__version__}; BLAS: {blas}",
        f"free memory: {'not known' if memory is None else f'{memory / 1e9:.1f} GB'}",
    ]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
