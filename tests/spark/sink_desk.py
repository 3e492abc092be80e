"""A hub without a server, to which a job's alerts and commands go."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from backhaul_spark.rules.alert import Alert
from backhaul_spark.sink.outgoing import Outgoing
from backhaul_spark.sink.publisher import Published, Publisher

if TYPE_CHECKING:
    from collections.abc import Iterable

NOW_NS = 1_777_636_800 * 10**9
STORED = b'{"stream":"TWIN_EVENTS","seq":1}'


def hot(number: int = 0, **more: Any) -> Alert:
    said: dict[str, Any] = {
        "device": "VID-001",
        "rule": "hot",
        "kind": "raised",
        "severity": "critical",
        "time_ns": NOW_NS + number,
        "text": "battery is at 61 °C",
        "command": "cool_down",
        "params": {"target_c": 55},
    }
    return Alert(**(said | more))


def row(**more: Any) -> dict[str, Any]:
    return hot(**more).to_row()


def refused(code: int) -> bytes:
    return json.dumps({"error": {"code": 400, "err_code": code, "description": "no"}}).encode()


class FakeClock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ns(self) -> int:
        return NOW_NS + round(self.now_s * 10**9)

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class FakeHub:
    """A connection that stores what it is sent, unless it is told otherwise; refuses it as a hub does."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.script: list[bytes | Exception] = []
        self.opened = 0
        self.under_way_max = 0
        self._waiting: list[tuple[bytes, str]] = []

    def connect(self, endpoint: object) -> FakeHub:
        self.opened += 1
        self._waiting = []
        return self

    def close(self) -> None:
        pass

    def send_all(self, requests: Iterable[Outgoing]) -> list[bytes]:
        replies = []
        for subject, _, _ in requests:
            replies.append(b"r.%d.%d" % (self.opened, len(self._waiting) + len(self.stored)))
            self._waiting.append((replies[-1], subject))
        self.under_way_max = max(self.under_way_max, len(self._waiting))
        return replies

    def any_answer(self, what: str) -> tuple[bytes, bytes, bytes]:
        said = self.script.pop(0) if self.script else STORED
        if isinstance(said, Exception):
            raise said
        reply, subject = self._waiting.pop(0)
        if said == STORED:
            self.stored.append(subject)
        return reply, b"NATS/1.0 503\r\n\r\n" if not said else b"", said


class Desk:
    """A publisher at a fake hub."""

    def __init__(self, *script: bytes | Exception, give_up: bool = False) -> None:
        self.hub, self.clock, self.told = FakeHub(), FakeClock(), list[str]()
        self.hub.script += script
        self.publisher = Publisher(
            None,  # type: ignore[arg-type]
            tell=self.told.append,
            give_up=lambda: give_up,
            clock=self.clock,
            connect=self.hub.connect,  # type: ignore[arg-type]
        )

    def publish(self, *subjects: str) -> Published:
        return self.publisher.publish(subjects, lambda each: Outgoing(each, b"", b""))
