"""The local programs of this vehicle, and the rights of each: a pure core.

Kept in `apps.json`, from which `apps.accounts_text` makes the leaf server's accounts. A right names a node,
a kind of event or a command, never a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from backhaul_agent.errors import AppError
from backhaul_codec.strict.json import JsonError, read_typed
from backhaul_codec.subjects import SubjectError, encode_token

VERSION = 1
APPS_MAX = 200
RIGHTS_MAX = 64  # of one kind, of one program
COMMANDS = "cmd"
# How commands reach programs without a key: never one that a program with a key carries out.
OPEN_COMMANDS = "cmdopen"
# How programs' requests reach the agent: agent.from.<door>.<program>.<subject> (apps/doors.py). Below
# ``agent.``, which the leaf.conf of every vehicle keeps from the hub.
FROM = "agent.from"
DOORS = 8
OPEN_PROGRAM = "_open"  # all programs without a key; no program can be named so

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z"
AppName = Annotated[str, Meta(pattern=_NAME)]
PublicKey = Annotated[str, Meta(pattern=r"^U[A-Z2-7]{55}\Z")]
CommandName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}\Z", max_length=128)
]
Names = Annotated[tuple[str, ...], Meta(max_length=RIGHTS_MAX)]


class App(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A program: the public half of its key, and its rights.

    ``publish``: nodes whose points it publishes. ``event``: kinds of events that it reports.
    ``read``: nodes whose state, configuration and history it reads; ``set``: that it writes.
    ``command``: operators' commands that it carries out. ``artifacts``: whether it moves files.
    """

    key: PublicKey
    publish: Names = ()
    event: Names = ()
    read: Names = ()
    set: Names = ()
    command: Annotated[tuple[CommandName, ...], Meta(max_length=RIGHTS_MAX)] = ()
    artifacts: bool = False


class Apps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All programs of a vehicle. ``open``: one without a key may do everything programs may."""

    version: int = VERSION
    open: bool = False
    apps: Annotated[dict[AppName, App], Meta(max_length=APPS_MAX)] = {}

    def with_app(self, name: str, app: App) -> Apps:
        """Return these and one more, or one with other rights.

        Raises:
            AppError: a name cannot be used so, or another program carries out one of its commands.
        """
        for other, held in self.apps.items():
            taken = sorted(set(held.command) & set(app.command))
            if other != name and taken:
                raise AppError(
                    f"{other} carries out {', '.join(taken)}",
                    hint="a command has one program: take it from that one first",
                )
        apps = dict(sorted({**self.apps, name: app}.items()))
        return read_apps(write_apps(msgspec.structs.replace(self, apps=apps)))

    def without(self, name: str) -> Apps:
        """Return the others. Raises: AppError, where there is no such program."""
        if name not in self.apps:
            raise AppError(f"there is no program {name}", hint="see: backhaul-agent app ls")
        others = {other: app for other, app in self.apps.items() if other != name}
        return msgspec.structs.replace(self, apps=others)


def read_apps(text: str) -> Apps:
    """Read apps.json. Raises: AppError, with the reason."""
    try:
        apps = read_typed(text, Apps)
        for app in apps.apps.values():
            for name in (*app.publish, *app.event, *app.read, *app.set):
                _require_token(name)
    except (JsonError, SubjectError) as error:
        raise AppError(str(error), hint="see: backhaul-agent app add --help") from error
    if apps.version != VERSION:
        raise AppError(
            f"apps.json is of version {apps.version}, this backhaul knows {VERSION}",
            hint="a newer backhaul wrote it: use that one",
        )
    return apps


def write_apps(apps: Apps) -> str:
    """Return the text of apps.json."""
    return msgspec.json.format(msgspec.json.encode(apps), indent=2).decode() + "\n"


def require_app_name(name: str) -> str:
    """Return the name. Raises: AppError, where it is none."""
    if not re.match(_NAME, name):
        raise AppError(
            f"{name[:80]!r} is no name of a program", hint="letters, digits, - and _, 63 at most"
        )
    return name


@dataclass(frozen=True, slots=True)
class Subjects:
    """A program's rights in subjects; the leaf server refuses all others.

    ``ask``: where it publishes and asks. ``hear``: what it is told. ``carry_out``: commands.
    """

    ask: tuple[str, ...]
    hear: tuple[str, ...]
    carry_out: tuple[str, ...]


# All that the agent offers any program; a program without a key, where such are let in, has all of it.
OFFERED = Subjects(
    ask=(
        "app.>",
        "agent.status",
        "agent.event.>",
        "agent.get",
        "agent.get.>",
        "agent.tree",
        "agent.set",
        "agent.set.>",
        "agent.node.*",
        "agent.history",
        "agent.history.>",
        "agent.artifact.>",
        "agent.replay.*",
    ),
    hear=("agent.changed.>", "agent.ready", "agent.rejected.>"),
    carry_out=(f"{COMMANDS}.>",),
)


def door_subject(door: int | str, program: str, subject: str) -> str:
    """Return the subject under which a program's request on ``subject`` reaches the agent."""
    return f"{FROM}.{door}.{program}.{subject}"


def subjects_of(app: App) -> Subjects:
    """Return a program's rights, in subjects."""
    asked, heard = ["agent.status"], []
    for node in _tokens(app.publish):
        points = (f"app.{node}", f"app.{node}.>")  # in frames, and one by one
        asked += points
        heard += [f"agent.rejected.{subject}" for subject in points]
    for kind in _tokens(app.event):
        asked.append(f"agent.event.{kind}")
        heard.append(f"agent.rejected.agent.event.{kind}")
    for node in _tokens(app.read):
        asked += [f"agent.get.{node}", f"agent.get.{node}.>", f"agent.history.{node}"]
        # Of the node itself, and of the edges that lead to it.
        heard += [f"agent.changed.{node}.*.*", f"agent.changed.*.{node}.*.*"]
    if app.read:
        heard.append("agent.ready")
    asked += [f"agent.set.{node}" for node in _tokens(app.set)]
    if app.artifacts:
        asked.append("agent.artifact.>")
    return Subjects(tuple(asked), tuple(heard), tuple(f"{COMMANDS}.{name}" for name in app.command))


def _tokens(names: tuple[str, ...]) -> Iterator[str]:
    return map(encode_token, dict.fromkeys(names))


def _require_token(name: str) -> None:
    if not 0 < len(encode_token(name) if name else "") <= 255:
        raise SubjectError(f"{name[:40]!r} is no name of a node or kind")
