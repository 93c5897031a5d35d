"""Addresses such as `hf://`, `https://` and `s3://`, and which part of them may be shown."""

import os
import re
from dataclasses import dataclass, replace
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from uncone.errors import InputError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_KINDS = {"datasets": "datasets/", "spaces": "spaces/"}  # of repositories of the Hub; models have no prefix


def is_remote(text: str) -> bool:
    return _SCHEME.match(text) is not None


@dataclass(frozen=True)
class Address:
    """A file or a folder. `url` is requested. It may hold a password or a signature, and is never shown."""

    url: str
    name: str
    of_hub: bool = False  # if true, the Hub's token goes with each request

    def __truediv__(self, file: str) -> "Address":
        at = urlsplit(self.url)
        path = f"{at.path.rstrip('/')}/{quote(file)}"
        return replace(self, url=urlunsplit(at._replace(path=path)), name=f"{self.name.rstrip('/')}/{file}")

    @property
    def is_http(self) -> bool:
        return self.url.lower().startswith(("http://", "https://"))


def address_of(text: str) -> Address:
    """The address in a URL without its '#part'. InputError: it has no host or no name."""
    parts = urlsplit(text)
    if parts.scheme.lower() == "hf":
        return _of_hub(parts)
    host = parts.netloc.rpartition("@")[2]
    name = f"{parts.scheme}://{host}{parts.path}"
    if not (host or parts.path.strip("/")):
        raise InputError(f"expected a URL with a host and a path, got {name!r}: as in https://host/model.safetensors")
    return Address(text, name)


def _of_hub(parts: SplitResult) -> Address:
    """hf://org/model[@revision][/file], and hf://datasets/org/name[@revision]/file."""
    kind = _KINDS.get(parts.netloc, "")
    words = [*([] if kind else [parts.netloc]), *parts.path.strip("/").split("/")]
    if len(words) < 2 or not all(words) or ".." in words:
        told = f"hf://{parts.netloc}{parts.path}"
        raise InputError(f"expected hf://ORG/MODEL, hf://ORG/MODEL@REVISION or a file in it, got {told[:200]!r}")
    org, (name, _, revision), file = words[0], words[1].partition("@"), "/".join(words[2:])
    host = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{host}/{kind}{quote(org)}/{quote(name)}/resolve/{quote(revision or 'main', safe='')}"
    shown = f"hf://{kind}{org}/{words[1]}"
    found = Address(url, shown, of_hub=True)
    return found / file if file else found
