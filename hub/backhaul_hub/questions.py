"""What is asked of the hub's services: JSON objects, whose unknown fields are refused. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from backhaul_hub.alert_settings import Severity

WHO_HEADER = "Backhaul-Who"
"""In which a command line says whose it is: by the machine's word, since its login has every right."""


def subject(service: str) -> str:
    """Return the subject on which operators ask a service, in account HUB."""
    return f"hub.{service}"


class Get(msgspec.Struct, forbid_unknown_fields=True):
    """Heads of one device."""

    device: str
    paths: list[str] = []
    deleted: bool = False
    telemetry: bool = False


class PointToWrite(msgspec.Struct, forbid_unknown_fields=True):
    """One point as it is asked for; with `delete` it is deleted."""

    type: str
    key: str = ""
    value: Any = None
    dtype: str | None = None
    delete: bool = False


class Set(msgspec.Struct, forbid_unknown_fields=True):
    """Points of one node, written whole or not at all."""

    device: str
    node: str
    points: list[PointToWrite]
    parent: str = ""
    who: str = ""


class Node(msgspec.Struct, forbid_unknown_fields=True):
    """A change of the tree."""

    do: Literal["create", "move", "mirror", "delete", "undelete"]
    address: str
    under: str | None = None
    source: str | None = None
    type: Any = None
    points: list[PointToWrite] = []
    who: str = ""


class HandOver(msgspec.Struct, forbid_unknown_fields=True):
    """An operator's wish that another machine leads the hub."""

    to: str = ""
    """Its name; empty: any that is ready."""


class ConflictsQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Conflicts of one device or of all; with `settled` those that were settled too."""

    device: str | None = None
    settled: bool = False


class Settle(msgspec.Struct, forbid_unknown_fields=True):
    """Have a conflict's loser written again, or accept the winner."""

    id: int
    who: str = ""
    accept: bool = False


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """No more than the question itself."""


class CommandsQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Which commands: of a device, one by its id, only those that are not over."""

    device: str | None = None
    id: str | None = None
    unfinished: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class DevicesQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """A page of the report on devices: of those whose ids come after one."""

    after: str = ""


class StateQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Newest values: of one device, or a page of them, of the devices that come after one."""

    device: str | None = None
    after: str = ""


class Events(msgspec.Struct, forbid_unknown_fields=True):
    """Events of one device or all from a time on (ns since the Unix epoch): the newest so many."""

    since_ns: Annotated[int, Meta(ge=0)]
    device: str | None = None
    kind: str | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class AlertsQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Alerts, the newest first: those that are open, with `past` the others too; of one device, or one by its id.

    `before_ns` goes on behind the last of an answer.
    """

    device: str | None = None
    id: AlertId | None = None
    past: bool = False
    before_ns: int | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class Acknowledge(msgspec.Struct, forbid_unknown_fields=True):
    """Somebody takes care of an open alert."""

    id: AlertId
    note: Annotated[str, Meta(max_length=500)] = ""
    who: Annotated[str, Meta(max_length=64)] = ""


class SilenceQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Have nobody told for a time: of alerts below a group or device, of some rule or condition alone (* for any).

    With `end` a silence of this number ends now.
    """

    group: str = ""
    for_s: Annotated[float, Meta(gt=0, le=30 * 86_400)] | None = None
    name: Annotated[str, Meta(max_length=64)] = ""
    why: Annotated[str, Meta(max_length=500)] = ""
    end: int | None = None
    who: Annotated[str, Meta(max_length=64)] = ""


class Notify(msgspec.Struct, forbid_unknown_fields=True):
    """Have a channel that failed tried at once."""

    channel: str


class CommandQuestion(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A command to be sent."""

    device: str
    name: CommandName
    id: CommandId = ""
    params: msgspec.Raw = msgspec.Raw(b"null")
    deadline_s: Annotated[float, Meta(gt=0)] | None = None


class Shadow(msgspec.Struct, forbid_unknown_fields=True):
    """Revisions of a shadow's documents: of one, or of all four."""

    device: str
    part: Literal["desired", "reported", "config", "meta"] | None = None


class FieldQuestion(PointToWrite, kw_only=True):
    """One field to be desired; with `delete` its deletion is."""

    node: str


class Desire(msgspec.Struct, forbid_unknown_fields=True):
    """Change what is desired: these fields; of `forget` (node.type[.key]) nothing is any more.

    With `only` nothing else than this stays desired. With `based_on` it is refused where another revision
    of `desired` than this one is the newest by now; 0: where there is any.
    """

    device: str
    points: Annotated[list[FieldQuestion], Meta(max_length=FIELDS_MAX)] = []
    forget: Annotated[list[str], Meta(max_length=FIELDS_MAX)] = []
    only: bool = False
    based_on: Annotated[int, Meta(ge=0)] | None = None


class PageLogin(msgspec.Struct, forbid_unknown_fields=True):
    """A browser that logs in by a link: the link's token, and the public key that the browser made, in base64url."""

    token: Annotated[str, Meta(max_length=64)]
    public_key: Annotated[str, Meta(max_length=64)]


class HoursQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """A page of whether the hours from one to another (ns since the Unix epoch) are complete: of one device, or of those after one.

    With `since`, the `known` of an earlier answer, of those that have changed.
    """

    from_ns: Annotated[int, Meta(ge=0)]
    to_ns: Annotated[int, Meta(ge=0)]
    device: str | None = None
    after: str = ""
    since: Annotated[str, Meta(max_length=64)] = ""


class FleetQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """A page of short rows of devices: of one, or of those after one, with the newest values of some series (node.type[.key])."""

    device: str | None = None
    after: str = ""
    series: Annotated[list[str], Meta(max_length=8)] = []


class SeriesQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """Which series of telemetry there are: of one device, or of all."""

    device: str | None = None


class Enrol(msgspec.Struct, forbid_unknown_fields=True):
    """A token for a vehicle to come, to be used once within `expires_s` seconds."""

    device: str
    expires_s: Annotated[float, Meta(gt=0)]
    link_kbit_s: float = 1000.0
    link_mode: Literal["always", "scheduled", "on-demand"] = "always"
    nodes: list[str] = []


class AddDevice(msgspec.Struct, forbid_unknown_fields=True):
    """A device to be enrolled; with `nodes` one that is there is given exactly these nodes with streams of their own.

    `told`: whether servers and control plane are to learn of it now, or by a later question.
    """

    device: str
    link_kbit_s: float | None = None
    link_mode: Literal["always", "scheduled", "on-demand"] | None = None
    nodes: list[str] | None = None
    told: bool = True


class OneDevice(msgspec.Struct, forbid_unknown_fields=True):
    """A device, by its id, for services that need nothing else."""

    device: str


class Erase(msgspec.Struct, forbid_unknown_fields=True):
    """A device, or a person, to be erased."""

    device: str = ""
    person: str = ""


class Rotate(msgspec.Struct, forbid_unknown_fields=True):
    """A device that is to get another key; with `again` also where that is under way."""

    device: str
    again: bool = False


class Tokens(msgspec.Struct, forbid_unknown_fields=True):
    """A page of enrolment tokens: of the devices that come after one; with `every` used and void ones as well."""

    device: str | None = None
    every: bool = False
    after: str = ""


class UserAdd(msgspec.Struct, forbid_unknown_fields=True):
    """A person who is to have rights to all below a group or device."""

    name: str
    group: str
    may: Literal["read", "write", "command"]


class UserLink(msgspec.Struct, forbid_unknown_fields=True):
    """A link for a person's browser, to be used once within `for_s` seconds."""

    name: str
    for_s: Annotated[float, Meta(gt=0, le=86_400)]


class UserRemove(msgspec.Struct, forbid_unknown_fields=True):
    """A person whose credentials are to be withdrawn."""

    name: str


class Users(msgspec.Struct, forbid_unknown_fields=True):
    """A page of the people with credentials, by name: those after one."""

    after: str = ""


class Reload(msgspec.Struct, forbid_unknown_fields=True):
    """Have servers and control plane know all devices; with `files` the servers read their configuration, too."""

    files: bool = False


class Completeness(msgspec.Struct, forbid_unknown_fields=True):
    """Whether hours of a device, from one to another (ns since the Unix epoch), are complete."""

    device: str
    from_ns: Annotated[int, Meta(ge=0)]
    to_ns: Annotated[int, Meta(ge=0)]


class EventHours(msgspec.Struct, forbid_unknown_fields=True):
    """In which hours events may be missing: of a device, or of a page of those that come after one."""

    from_ns: Annotated[int, Meta(ge=0)]
    to_ns: Annotated[int, Meta(ge=0)]
    device: str | None = None
    after: str = ""


class DryRun(msgspec.Struct, forbid_unknown_fields=True):
    """The notices to come: of all open alerts, or of one that is not there, as if it were raised now."""

    device: str | None = None
    severity: Severity | None = None
    name: str | None = None
    source: Literal["rule", "health", "anomaly"] | None = None
    skip: Annotated[int, Meta(ge=0)] = 0
    """A page of them: all after so many."""


AlertId = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]


CommandId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]


CommandName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}\Z", max_length=128)
]


FIELDS_MAX = 1000
