"""Alerts, a rule's words, as rows of Arrow. docs/twin-actor.md explains each column.

An alert is known by its id, which is made of what it says and nothing else (no batch, no wall
clock): a batch that is done again, or the same rule run over the table, gives the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_spark.tables.schemas import ALERTS

Kind = Literal["raised", "cleared"]
Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. `time_ns` is event time; `late` says that it was old news when the hub got it.

    A late alert carries no command, whoever makes it: what was too hot yesterday need not be cooled.
    """

    device: str
    rule: str
    kind: Kind
    severity: Severity
    time_ns: int
    text: str
    late: bool = False
    node: str = ""
    type: str = ""
    key: str = ""
    value: float | None = None
    limit: float | None = None
    unit: str = ""
    command: str = ""
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Name an alert; a device id and a rule's name hold no colon."""
        return f"{self.device}:{self.rule}:{self.kind}:{self.time_ns}"

    def to_row(self) -> dict[str, Any]:
        """Return a row of schema ALERTS."""
        row = asdict(self) | {"id": self.id, "params": json.dumps(self.params)}
        return row | {"command": "", "params": "{}"} if self.late else row


def alert_table(alerts: Iterable[Alert]) -> pa.Table:
    """Return the alerts as a table of schema ALERTS."""
    return pa.Table.from_pylist([alert.to_row() for alert in alerts], schema=ALERTS)
