"""The HTTP server behind `[metrics] listen`: so many connections at once, each for so long.

The one of prometheus-client keeps a thread for each connection, for as long as the other end likes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

OPEN_MAX = 8
"""Connections at once. One more ends the oldest: a scrape takes milliseconds, so that is none."""
OPEN_S_MAX = 10.0
"""Seconds for question and answer together; of a busy program the answer takes up to five."""
FREED_S_MAX = 1.0
"""Seconds that one more waits until the oldest has ended."""
SILENT_S_MAX = 5.0
"""Seconds in which nothing comes, or nothing is taken."""


_BOTH_WAYS = 2  # SHUT_RDWR


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """Answers in a thread a connection, of which there are few."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, monotonic_s: Callable[[], float]) -> None:
        """Listen. Raises: OSError, OverflowError: the address cannot be had."""
        self._monotonic_s = monotonic_s
        self._freed = threading.Condition()
        self._begun_s: dict[Any, float] = {}
        super().__init__((host, port), _Quiet)

    def end(self) -> None:
        """Listen no more, and return once `serve_forever` has ended."""
        # It looks twice a second whether it is to end; by this it looks at once.
        with suppress(OSError):
            self.socket.shutdown(_BOTH_WAYS)
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, and end the oldest connection where there are too many."""
        with self._freed:
            if len(self._begun_s) >= OPEN_MAX:
                _end(min(self._begun_s, key=self._begun_s.__getitem__))
            free = self._freed.wait_for(lambda: len(self._begun_s) < OPEN_MAX, FREED_S_MAX)
            if free:
                self._begun_s[request] = self._monotonic_s()
        if free:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and forget it."""
        with self._freed:
            self._begun_s.pop(request, None)
            self._freed.notify()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that take too long; called twice a second."""
        super().service_actions()
        with self._freed:
            until_s = self._monotonic_s() - OPEN_S_MAX
            for request in [each for each, begun_s in self._begun_s.items() if begun_s < until_s]:
                _end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a connection's errors: of itself a server writes a traceback."""


class _Quiet(WSGIRequestHandler):
    timeout = SILENT_S_MAX

    def log_message(self, format: str, *args: Any) -> None:
        """Log no scrapes."""


def _end(request: Any) -> None:
    """Have its thread see the end of a connection; the thread closes it."""
    with suppress(OSError):
        request.shutdown(_BOTH_WAYS)
