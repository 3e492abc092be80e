"""The base of a rule. docs/twin-actor.md says how to add one: a file in rules/catalog, and nothing else.

A rule never loops over samples or devices. The engine cuts a batch into rounds in which each device
has one sample at most, in the order of time; so a rule is written as if for one sample of one device,
in numpy, and works on thousands of devices at once.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from backhaul_spark.arrays import Flags, Floats, Ints
from backhaul_spark.decode.series import SeriesKey
from backhaul_spark.rules.alert import Kind, Severity

# Rows of a rule's `state`, or of batch.MESSAGE; written to in place.
Rows = NDArray[Any]

SECOND_NS = 1_000_000_000


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of a rule's configuration, under [rules.<name>]."""

    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Samples:
    """One sample of each of some devices. All arrays have the same length.

    `signal` holds the names that the rule gives to its signals; `heads` the value of each of its
    config points, NaN where none was written.
    """

    signal: NDArray[np.str_]
    time_ns: Ints
    value: Floats
    heads: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class Finding:
    """Say of which devices something is to be told.

    `where`: a mask over the devices that the rule was given. The others are as long as `where`, or
    one value for all. `note`: whatever `sentence` needs to know.
    """

    kind: Kind
    where: Flags
    time_ns: Ints
    value: Floats
    limit: Floats | float
    note: str = ""


@dataclass(frozen=True, slots=True)
class AlertDraft:
    """One alert, before it is put in words."""

    device: str
    kind: Kind
    time_ns: int
    value: float
    limit: float
    note: str


class Rule(ABC):
    """One rule. Subclasses in rules/catalog are found by themselves.

    `name`: as in alerts and in the configuration. `unit`: of `value` and `limit`. `signals`, `heads`:
    what the rule calls the series that it is about, and where they are by default; the first signal
    is the one that its alerts name. Heads are config points whose newest value counts. `state`: the
    fields that it remembers of each device, all zero at first; `open` says that an alert is open.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    severity: ClassVar[Severity]
    signals: ClassVar[Mapping[str, str]] = {}
    heads: ClassVar[Mapping[str, str]] = {}
    state: ClassVar[np.dtype[Any]]
    Settings: ClassVar[type[Settings]] = Settings

    def __init__(self, settings: Any = None) -> None:
        self.settings: Any = self.Settings() if settings is None else settings

    def step(self, state: Rows, sample: Samples) -> Iterator[Finding]:
        """Take one sample of each of some devices, newer than those before; write to `state`."""
        yield from ()

    def heard(self, state: Rows, first: Flags, messages: Rows) -> Iterator[Finding]:
        """Take messages of any kind, by device and in the order in which they were stored.

        Among them are the hub's words that a device's agent is there, or gone (mark ALIVE, AWAY).

        Here `state` has a row for each message, all of a device's being copies; what is written to
        the row of its last message stays. `first`, (messages,) bool: where a device's messages begin.
        """
        yield from ()

    def tick(self, state: Rows, now_ns: int, watched_ns: int) -> Iterator[Finding]:
        """Look at all devices every few seconds.

        Args:
            state: of all of them; to be written to.
            now_ns: up to when everything stored was read.
            watched_ns: when the hub said last that it looks whose agent is there (batch.ALIVE).
        """
        yield from ()

    def sentence(self, said: AlertDraft, series: SeriesKey | None) -> str:
        """Put an alert in words, without the device's name."""
        word = "above" if said.kind == "raised" else "back within"
        return f"{series} is {said.value:g} {self.unit}, {word} {said.limit:g}"

    def command(self, said: AlertDraft) -> tuple[str, dict[str, Any]] | None:
        """Return the command for the vehicle, with parameters; None for nothing."""
        return None


@dataclass(frozen=True, slots=True)
class Spoken:
    """A rule with the series that the configuration gives it."""

    rule: Rule
    signals: Mapping[str, SeriesKey] = field(default_factory=dict)
    heads: Mapping[str, SeriesKey] = field(default_factory=dict)

    @property
    def series(self) -> SeriesKey | None:
        """Return the series that its alerts name."""
        return next(iter(self.signals.values()), None)
