"""A server of files on this machine, for tests: with ranges, and with every way in which one can fail or lie."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from uncone.rows.remote import http

Change = Callable[["Answer"], None]


@dataclass
class Answer:
    """What a request gets, before a fault has changed it."""

    path: str
    headers_asked: dict[str, str]
    status: int
    headers: dict[str, str]
    body: bytes
    number: int  # of the request, from 0
    cut: int | None = None  # so many bytes of the body are sent, and then the connection is closed
    pause: float = 0.0  # seconds before each 64 kB


@dataclass
class Server:
    files: dict[str, bytes]
    ranges: bool = True
    change: Change = lambda answer: None
    url: str = ""
    sent: int = 0  # bytes of bodies
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def requests(self) -> Counter[str]:
        return Counter(path for path, _ in self.asked)


def _answer(server: Server, path: str, asked: dict[str, str]) -> Answer:
    number = len(server.asked)
    server.asked.append((path, asked))
    content = server.files.get(urlsplit(path).path.lstrip("/"))
    if content is None:
        return Answer(path, asked, 404, {}, b"not here", number)
    headers = {"ETag": f'"{len(content)}"'}
    told = asked.get("range", "")
    if not server.ranges or not told:
        return Answer(path, asked, 200, headers, content, number)
    first, last = map(int, told.removeprefix("bytes=").split("-"))
    if first >= len(content):
        return Answer(path, asked, 416, {"Content-Range": f"bytes */{len(content)}"}, b"", number)
    last = min(last, len(content) - 1)
    headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    return Answer(path, asked, 206, headers, content[first : last + 1], number)


@contextmanager
def serving(files: dict[str, bytes], *, ranges: bool = True, change: Change = lambda answer: None) -> Iterator[Server]:
    """`change` may alter each answer before it is sent."""
    server = Server(files, ranges, change)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            answer = _answer(server, self.path, {name.lower(): value for name, value in self.headers.items()})
            server.change(answer)
            self.send_response(answer.status)
            for name, value in ({"Content-Length": str(len(answer.body))} | answer.headers).items():
                self.send_header(name, value)
            self.end_headers()
            body = answer.body if answer.cut is None else answer.body[: answer.cut]
            for at in range(0, len(body), 2**16):
                time.sleep(answer.pause)
                self.wfile.write(body[at : at + 2**16])
                server.sent += len(body[at : at + 2**16])
            if answer.cut is not None:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Of a client that went away."""

    with Quiet(("127.0.0.1", 0), Handler) as running:
        running.daemon_threads = True
        server.url = f"http://127.0.0.1:{running.server_address[1]}"
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield server
        finally:
            running.shutdown()
            if http.client.cache_info().currsize:  # whose connections would be left open until they are collected
                http.client().close()
                http.client.cache_clear()
