"""The question about the past of one series, as people ask the hub and the hub the server of history. Pure.

Its answer is a JSON object (docs/people.md#history); of a refusal `{"error": {"message", "hint"}}`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

SUBJECT = "history.ask"
"""Where the server of history is asked: in account HISTORY, and by the control plane in account HUB."""
POINTS_MAX = 4000
"""The most buckets, or points, of an answer: a wide screen has no more pixels."""
ANSWER_S_MAX = 20.0
"""For how long a question is worked at."""

ALIVE = b""
"""The question whether it is here; its answer is `Alive`."""


class JobStand(msgspec.Struct, frozen=True):
    """How far a job is that writes the tables, or reads the hub's streams as they do."""

    job: str
    behind: int | None
    """Messages of the hub, or for `rollup` ingests, that it has not been at; None: the hub did not answer."""
    still_s: float
    """For how long it has been behind and has not moved, in seconds."""


class Alive(msgspec.Struct, frozen=True):
    """The server of history is here, and says how the jobs beside it stand."""

    looked_ns: int = 0
    """When; ns since the Unix epoch, 0: not yet."""
    jobs: tuple[JobStand, ...] = ()
    written_ns: dict[str, int] = {}
    """By table, when it was last written; ns since the Unix epoch."""
    erased: tuple[str, ...] = ()
    """Devices that were erased from the tables."""


_Name = Annotated[str, Meta(min_length=1, max_length=255)]


class PastQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """One series, from a time on (µs since 1970, included) up to another, in at most so many buckets."""

    device: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")]
    node: _Name
    type: _Name
    from_us: int
    to_us: int
    key: Annotated[str, Meta(max_length=255)] = ""
    points_max: Annotated[int, Meta(ge=10, le=POINTS_MAX)] = 1000
