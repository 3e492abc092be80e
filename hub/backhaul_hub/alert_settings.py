"""`[alerts]` of hub.toml: the channels over which people hear of alerts, and the routes to them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from backhaul_codec.strict.toml_values import url_problem

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
Source = Literal["rule", "health", "anomaly"]

Address = Annotated[str, Meta(pattern=r"^[^\s@<>,;:\"]+@[^\s@<>,;:\"]+\Z", max_length=254)]
ChannelName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")]
_LOCAL = ("127.0.0.1", "::1", "localhost")


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of hub.toml."""


class _Channel(_Section, frozen=True, tag_field="kind"):
    """One way to people."""

    interval_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """Between two messages: all that happens meanwhile is in one."""
    timeout_s: Annotated[float, Meta(gt=0, le=120)] = 15.0
    """For one message, from the connection to the answer."""
    ca: str = ""
    """The authorities by which its server is known: a PEM file, relative to the hub directory; empty:
    those of the system."""

    @property
    def secret_files(self) -> tuple[str, ...]:
        """Return the files of its secrets, relative to the hub directory."""
        return ()


class Webhook(_Channel, frozen=True, tag="webhook"):
    """A POST of JSON."""

    url: str = ""
    url_file: str = ""
    """In its place where the address itself is a secret: a file."""
    token_file: str = ""
    """Of the token that goes as `Authorization: Bearer`."""
    signing_file: str = ""
    """Of the key with which the body is signed, HMAC-SHA256 in `X-Backhaul-Signature`."""

    @property
    def secret_files(self) -> tuple[str, ...]:
        """Return the files of its secrets."""
        return tuple(filter(None, (self.url_file, self.token_file, self.signing_file)))


class Ntfy(_Channel, frozen=True, tag="ntfy"):
    """A topic of an ntfy server."""

    url: str = "https://ntfy.sh"
    topic: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{0,64}\Z")] = ""
    topic_file: str = ""
    """In its place: on a public server a topic's name is all the protection that it has."""
    token_file: str = ""

    @property
    def secret_files(self) -> tuple[str, ...]:
        """Return the files of its secrets."""
        return tuple(filter(None, (self.topic_file, self.token_file)))


class Mail(_Channel, frozen=True, kw_only=True, tag="smtp"):
    """E-mail over a server that takes it in."""

    host: Annotated[str, Meta(min_length=1, max_length=253)]
    port: Annotated[int, Meta(ge=1, le=65535)] = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"
    sender: Address
    to: Annotated[list[Address], Meta(min_length=1, max_length=50)]
    user: str = ""
    password_file: str = ""
    interval_s: Annotated[float, Meta(ge=0, le=3600)] = 30.0

    @property
    def secret_files(self) -> tuple[str, ...]:
        """Return the files of its secrets."""
        return tuple(filter(None, (self.password_file,)))


Channel = Webhook | Ntfy | Mail


class Route(_Section, frozen=True):
    """The alerts that go over some channels. Of the routes to one channel the first that fits counts."""

    channels: Annotated[list[ChannelName], Meta(min_length=1, max_length=32)]
    severity: Severity = "warning"
    """This, or worse."""
    groups: Annotated[list[str], Meta(max_length=1000)] = []
    """Groups or devices that it must be below; empty: everything, and all that is of no vehicle."""
    sources: Annotated[list[Source], Meta(max_length=3)] = []
    """Empty: all."""
    names: Annotated[list[str], Meta(max_length=100)] = []
    """Rules' names and conditions' codes, with * for any; empty: all."""
    hold_s: Annotated[float, Meta(ge=0, le=7 * 86_400)] | None = None
    repeat_s: Annotated[float, Meta(ge=0, le=30 * 86_400)] | None = None
    recovery: bool = True
    """Whether the end of an alert that was told is told, too."""


class AlertsSection(_Section, frozen=True):
    """The memory of alerts, and the ways to people (docs/alerts.md)."""

    hold_s: Annotated[float, Meta(ge=0, le=7 * 86_400)] = 60.0
    """Of a route that says nothing else: an alert that is over sooner is told nobody."""
    repeat_s: Annotated[float, Meta(ge=0, le=30 * 86_400)] = 14_400.0
    """Likewise: told again so often while nobody has acknowledged it; 0: never."""
    rows_max: Annotated[int, Meta(ge=100, le=1_000_000)] = 100_000
    """Alerts that are remembered; beyond it the oldest past ones are forgotten."""
    days_max: Annotated[float, Meta(gt=0, le=3650)] = 90.0
    """Past ones are forgotten after that."""
    channels: dict[ChannelName, Channel] = {}
    routes: Annotated[list[Route], Meta(max_length=100)] = []


def alert_problems(alerts: AlertsSection) -> Iterator[tuple[str, str]]:
    """Yield the key of each value of `[alerts]` that nothing can be done with, and why."""
    named = {name for route in alerts.routes for name in route.channels}
    for number, route in enumerate(alerts.routes):
        for name in route.channels:
            if name not in alerts.channels:
                known = ", ".join(sorted(alerts.channels)) or "there is none"
                yield f"alerts.routes[{number}].channels", f"no channel {name!r}: {known}"
    for name, channel in alerts.channels.items():
        place = f"alerts.channels.{name}"
        if name not in named:
            yield place, "no route leads to it: name it in the channels of one of [[alerts.routes]]"
        for key, problem in _channel_problems(channel):
            yield f"{place}.{key}", problem


def odd_channel(raw: Any) -> str:
    """Return the name of the first channel that is none, and why; "" where each is one.

    Args:
        raw: `[alerts]` as it was read: msgspec's own error does not say which channel it means.
    """
    channels = raw.get("channels") if isinstance(raw, dict) else None
    for name, each in channels.items() if isinstance(channels, dict) else ():
        try:
            msgspec.convert(each, Channel)
        except msgspec.ValidationError as error:
            return f"alerts.channels.{name}: {error}"
    return ""


def _channel_problems(channel: Channel) -> Iterator[tuple[str, str]]:
    if isinstance(channel, Mail):
        if bool(channel.user) != bool(channel.password_file):
            yield "password_file", "user and password_file go together"
        if channel.tls == "none" and channel.user and channel.host not in _LOCAL:
            yield "tls", "a password goes to another machine over TLS alone: starttls or tls"
        return
    if isinstance(channel, Webhook):
        if bool(channel.url) == bool(channel.url_file):
            yield "url", "either url or url_file"
    elif bool(channel.topic) == bool(channel.topic_file):
        yield "topic", "either topic or topic_file"
    if channel.url and (problem := http_problem(channel.url, secret=bool(channel.secret_files))):
        yield "url", problem


def http_problem(url: str, *, secret: bool) -> str:
    """Return the error in the address of a request, "" if there is none; `secret`: one goes along."""
    if problem := url_problem(url):
        return problem
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return f"{parts.scheme}: http or https"
    if parts.username or parts.password:
        return "a user or password stands in it: secrets are in files (token_file, url_file)"
    if parts.scheme == "http" and secret and parts.hostname not in _LOCAL:
        return "a secret goes to another machine over https alone"
    return ""
