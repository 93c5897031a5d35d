"""A file behind http or https, read by ranges: nothing is kept on disk, and no credential reaches a message.

Whatever can be checked of an answer is checked: the range, the whole length, the ETag, and a checksum of the bytes if
the server gives one.
"""

import atexit
import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from uncone.errors import InputError
from uncone.memory import check_memory
from uncone.rows.remote.address import Address
from uncone.rows.remote.source import Dropped, NotThere, RemoteFile

_FIRST = 2**14  # bytes that come with the size: most headers are shorter
_SECONDS, _LONGEST_WAIT, _MOST_REDIRECTS = 30.0, 60.0, 10
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_REFUSED = (401, 403)


@cache
def library() -> Any:
    """httpx, or httpx2 with the same interface, which newer versions of huggingface_hub bring."""
    for name in ("httpx", "httpx2"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise InputError("reading over http needs httpx, got none: pip install 'uncone[remote]'")


class HttpFile(RemoteFile):
    """With `allow_full`, a server without ranges may send the whole file, which is then kept in memory."""

    def __init__(self, address: Address, *, allow_full: bool = False) -> None:
        self._address, self._allow_full = address, allow_full
        self._mark: str | None = None
        super().__init__(address.name)

    def begin(self) -> None:
        tries, self.size = 0, -1
        while self.size < 0:
            try:
                with self._asked(0, _FIRST) as answer:
                    if answer.status_code == 200:
                        self._take_whole(answer)
                    else:
                        self.first = b"".join(answer.iter_raw())[:_FIRST]
                        self.received += len(self.first)
            except Dropped as error:
                tries = self.wait(tries, error, "nothing")

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        with self._asked(start, stop) as answer:
            if answer.status_code == 200:
                raise _changed(self.name, "is no longer served in ranges")
            check = _Checksum(answer.headers)
            for piece in answer.iter_raw():
                check.update(piece)
                yield piece
            check.compare(self.name)

    @contextmanager
    def _asked(self, start: int, stop: int) -> Iterator[Any]:
        """The answer to a request for a range, checked to be this range. Raises `Dropped` for now, or InputError."""
        http = library()
        headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"} | _credentials(self._address)
        try:
            with client().stream("GET", self._address.url, headers=headers) as answer:
                self._check(answer, start, stop)
                yield answer
        except http.TooManyRedirects as error:
            raise InputError(
                f"expected {self.name}, got more than {_MOST_REDIRECTS} redirects: give the final URL"
            ) from error
        except (http.UnsupportedProtocol, http.InvalidURL) as error:
            raise InputError(f"expected a URL of http or https, got {self.name}: write out the URL") from error
        except http.TransportError as error:  # its message may hold the URL
            raise Dropped(type(error).__name__) from error

    def _check(self, answer: Any, start: int, stop: int) -> None:
        status = answer.status_code
        if answer.url.scheme != "https" and self._address.url.startswith("https:"):
            raise InputError(
                f"expected https all the way to {self.name}, got a redirect to {answer.url.scheme}: do not trust it"
            )
        if status in _BUSY:
            raise Dropped(f"status {status}", _seconds(answer.headers.get("Retry-After", "")))
        if status in _REFUSED:
            raise InputError(f"expected permission to read {self.name}, got status {status}: {_way_in(self._address)}")
        if status == 404:
            raise NotThere(f"no file {self.name} (status 404): check the name, and the revision if you gave one")
        if status not in (200, 206):
            raise InputError(f"expected {self.name}, got status {status}: check that it is a file that can be read")
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise InputError(
                f"expected {self.name} as it is stored, got it compressed: the server ignores what was requested"
            )
        if status == 206:
            self._check_range(answer.headers, start, stop)

    def _check_range(self, headers: Mapping[str, str], start: int, stop: int) -> None:
        told = headers.get("Content-Range", "")
        match = _RANGE.fullmatch(told)
        first, last, size = map(int, match.groups()) if match else (-1, -1, -1)
        if (first, last) != (start, min(stop, size) - 1) or headers.get("Content-Length", str(last - first + 1)) != str(
            last - first + 1
        ):
            raise InputError(
                f"expected bytes {start} to {stop - 1} of {self.name}, got {told[:80] or 'no Content-Range'}: "
                "the server handles ranges wrongly"
            )
        if self.size < 0:
            self.size = size
        elif size != self.size:
            raise _changed(self.name, f"had {self.size} bytes and now has {size}")
        now = headers.get("ETag", "") or headers.get("Last-Modified", "")
        self._mark = now if self._mark is None else self._mark
        if now != self._mark:
            raise _changed(self.name, "has a new ETag or date")

    def _take_whole(self, answer: Any) -> None:
        told = answer.headers.get("Content-Length", "")
        size = int(told) if told.isdigit() else None
        if not self._allow_full:
            of = f"{size:,} bytes" if size is not None else "of unknown size"
            got = f"only the whole, {of}: copy the file, or allow this with `diagnose --allow-full` (allow_full=True)"
            raise InputError(f"expected a server that serves parts of {self.name}, got {got}")
        check, content = _Checksum(answer.headers), bytearray()
        for piece in answer.iter_raw():
            check.update(piece)
            content += piece
            self.received += len(piece)
            check_memory(size or len(content), f"the bytes of {self.name}", "copy the file, and open the copy")
        if size is not None and len(content) != size:
            raise Dropped(f"{len(content)} of {size} bytes arrived")
        check.compare(self.name)
        self.first, self.size = bytes(content), len(content)


@cache
def client() -> Any:
    """One client for all requests of the process, to reuse connections. Another host gets no credentials."""
    made = library().Client(follow_redirects=True, max_redirects=_MOST_REDIRECTS, timeout=_SECONDS)
    atexit.register(made.close)
    return made


class _Checksum:
    """The checksum that a server gives for the bytes it sends: Content-Digest (RFC 9530), or Content-MD5."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._sum: Any = None
        self._told = b""
        digest = re.search(r"sha-256=:?([A-Za-z0-9+/=]+):?", headers.get("Content-Digest", ""))
        text, make = (digest[1], hashlib.sha256) if digest else (headers.get("Content-MD5", ""), _md5)
        try:
            self._told = base64.b64decode(text, validate=True)
        except ValueError:
            return
        self._sum = make() if self._told else None

    def update(self, piece: bytes) -> None:
        if self._sum is not None:
            self._sum.update(piece)

    def compare(self, name: str) -> None:
        if self._sum is not None and self._sum.digest() != self._told:
            raise Dropped(f"its checksum does not match the bytes of {name} that arrived", damaged=True)


def _md5() -> Any:
    return hashlib.md5(usedforsecurity=False)  # only against damage


def _changed(name: str, how: str) -> InputError:
    return InputError(f"expected {name} to stay the same while it is read, got a change: it {how}; read it again")


def _seconds(told: str) -> float:
    return min(float(told), _LONGEST_WAIT) if told.isdigit() else 0.0


def _credentials(address: Address) -> dict[str, str]:
    """For the Hub, its token from HF_TOKEN or `hf auth login`."""
    if not address.of_hub:
        return {}
    from huggingface_hub import get_token

    token = get_token()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _way_in(address: Address) -> str:
    if address.of_hub:
        return "accept the model's terms on its page, and set HF_TOKEN or run `hf auth login`"
    return "give https://user:password@host/..., put the host into .netrc, or sign the URL"
