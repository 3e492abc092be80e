"""A local program's report of an event, checked and made a message: a pure core, no I/O.

Subject: ``agent.event.<kind>``, where no node's name can be in the way. The payload is empty, or JSON:

    {"previous": "disarmed", "reason": "pilot", "data": {"battery": 81.2}, "time": ..., "clock": ...}

all of it optional; ``time`` and ``clock`` as for points (ingest/parse.py). On the way to the hub it is
`e.app.<kind>`: what the agent says of itself is `e.<kind>`, so no program can speak in its name.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from backhaul_agent.apps.program_json import read_program_json
from backhaul_agent.commit.contents import Event
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.ingest.parse import Intake
from backhaul_agent.ledger.system_events import app_event
from backhaul_codec import CodecError
from backhaul_codec.strict.json import Reader
from backhaul_codec.subjects import SubjectError, decode_token

EVENT_PREFIX = "agent.event."
EVENT_SUBJECTS = f"{EVENT_PREFIX}>"
# Around "data": the kind, both words, and the time.
_ENVELOPE_BYTES = 4096


class EventReport(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The payload; an absent field is absent in the event."""

    previous: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    data: Any | UnsetType = UNSET
    time: int | str | UnsetType = UNSET
    clock: str | UnsetType = UNSET


class EventIntake:
    """Turns a subject and a payload into an event. ``ingest.parse`` knows the clock."""

    def __init__(self, intake: Intake, *, value_bytes_max: int) -> None:
        self._intake = intake
        self._value_bytes_max = value_bytes_max
        self._read = Reader(EventReport).read

    def parse(self, subject: str, payload: bytes, *, clock: str = "") -> Event:
        """Return the event; ``clock`` is the header's word.

        Raises:
            RefusedError: the program's mistake, with a code and a sentence for it.
        """
        if len(payload) > self._value_bytes_max + _ENVELOPE_BYTES:
            raise self._too_large(len(payload))
        report = read_program_json(self._read, payload) if payload.strip() else EventReport()
        word = clock if report.clock is UNSET else report.clock
        time_ns, stamps = self._intake.stamp(report.time, word)
        said = {"previous": report.previous, "reason": report.reason, "data": report.data}
        body = {name: value for name, value in said.items() if value is not UNSET}
        if (size := len(msgspec.json.encode(body))) > self._value_bytes_max:
            raise self._too_large(size)
        try:
            kind = decode_token(subject.removeprefix(EVENT_PREFIX))
            return Event(app_event(kind, body, time_ns, stamps.boot))
        except (SubjectError, CodecError) as error:
            raise RefusedError(
                Code.BAD_SUBJECT, f"{subject!r} is not {EVENT_PREFIX}<kind>: {error}"
            ) from error

    def _too_large(self, size: int) -> RefusedError:
        return RefusedError(
            Code.TOO_LARGE, f"an event of {size} bytes, {self._value_bytes_max} are allowed"
        )
