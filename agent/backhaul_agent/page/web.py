"""The page over HTTP: files for everybody, questions for browsers with a session. Called by the server's threads.

Of a request nothing is believed but what is compared: its name under the page's files or questions, its origin, its
token. The agent's loop answers its questions.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gzip
import mimetypes
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from backhaul_agent.page.gate import refusal
from backhaul_codec.programs.page_policy import headers

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

BODY_BYTES_MAX = 8 * 1024
ANSWER_S_MAX = 9.0
INDEX = "index.html"
_LASTING = "public, max-age=31536000, immutable"
_NOT_BUILT = "The page is not built: it comes with packages and wheels; in the sources, make setup builds it."
log = structlog.get_logger("page")
Answer = Callable[[str, str, str, bytes], Awaitable[tuple[int, dict[str, Any]]]]
"""Answers a POST: its path without the first /, the address it comes from, its token, its body."""


class PageWeb:
    """The application that the server calls.

    Args:
        files: the directory of the built page.
        names: under which it is reached, beside addresses and localhost.
        answer: runs on ``loop``.
        loop: the agent's.
    """

    def __init__(
        self, files: Path, names: Iterable[str], answer: Answer, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._names = frozenset(name.lower() for name in names)
        self._answer = answer
        self._loop = loop
        self._headers = headers([])
        self._files: Mapping[str, Path] = {
            path.name.removesuffix(".gz"): path for path in sorted(files.glob("*.gz"))
        }

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        method = environ["REQUEST_METHOD"]
        host = environ.get("HTTP_HOST", "")
        if why := refusal(method, host, environ.get("HTTP_ORIGIN"), self._names):
            return self._say(start, 403, _json({"error": {"code": "origin", "message": why}}))
        name = environ["PATH_INFO"].removeprefix("/")
        if method == "GET":
            return self._file(environ, start, name or INDEX)
        if method != "POST":
            return self._say(start, 405, b"")
        return self._asked(environ, start, name)

    def _asked(self, environ: WSGIEnvironment, start: StartResponse, name: str) -> Iterable[bytes]:
        if environ.get("CONTENT_TYPE", "").partition(";")[0].strip() != "application/json":
            return self._say(start, 415, b"")
        length = environ.get("CONTENT_LENGTH", "")
        # isdecimal alone would take other alphabets' digits, and int() any number of them.
        if not (length.isascii() and length.isdecimal() and len(length) < 8):
            return self._say(start, 411, b"")
        if int(length) > BODY_BYTES_MAX:
            return self._say(start, 413, b"")
        body = environ["wsgi.input"].read(int(length))
        scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        token = token if scheme == "Bearer" else ""
        asking = asyncio.run_coroutine_threadsafe(
            _whole(self._answer(name, environ.get("REMOTE_ADDR", ""), token, body)), self._loop
        )
        try:
            status, answer = asking.result(ANSWER_S_MAX)
        except (TimeoutError, concurrent.futures.CancelledError):
            asking.cancel()
            return self._say(start, 503, b"")
        return self._say(start, status, _json(answer))

    def _file(self, environ: WSGIEnvironment, start: StartResponse, name: str) -> Iterable[bytes]:
        path = self._files.get(name)
        if path is None:
            if name == INDEX:
                return self._say(start, 503, _NOT_BUILT.encode(), "text/plain; charset=utf-8")
            return self._say(start, 404, b"")
        body, more = path.read_bytes(), [("Vary", "Accept-Encoding")]
        if "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""):
            more.append(("Content-Encoding", "gzip"))
        else:
            body = gzip.decompress(body)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        text = kind.startswith("text/") or kind.endswith("javascript")
        more.append(("Cache-Control", "no-cache" if name == INDEX else _LASTING))
        return self._say(start, 200, body, f"{kind}; charset=utf-8" if text else kind, more)

    def _say(
        self,
        start: StartResponse,
        status: int,
        body: bytes,
        kind: str = "application/json",
        more: Iterable[tuple[str, str]] = (("Cache-Control", "no-store"),),
    ) -> Iterable[bytes]:
        own = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        start(f"{status} {HTTPStatus(status).phrase}", [*self._headers.items(), *own, *more])
        return [body]


async def _whole(answer: Awaitable[tuple[int, dict[str, Any]]]) -> tuple[int, dict[str, Any]]:
    return await answer


def _json(said: Any) -> bytes:
    return msgspec.json.encode(said)
