"""A message as each kind of channel says it: JSON for a webhook, a mail, a notification of ntfy. Pure.

Vehicles' words are lines of bounded length by now (`alert.plain`); here they are data alone: JSON strings, the text of a
mail that is no HTML, a notification without markdown.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from email.headerregistry import Address as MailAddress
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, NamedTuple

from backhaul_hub.alert_settings import SEVERITIES, Mail
from backhaul_hub.alerts.alert import rank
from backhaul_hub.alerts.outbox import NoticeMessage
from backhaul_hub.alerts.plan import Notice
from backhaul_hub.timestamps import rfc3339

TITLE_MAX = 120
NTFY_BYTES_MAX = 3500
"""A server of ntfy makes an attachment of what is longer than 4,096 bytes."""
_SECOND_NS = 1_000_000_000
_PRIORITY = {"critical": 5, "warning": 4, "info": 3}
_AGAIN = {"raised": "", "repeated": "still ", "over": "over: "}


class Post(NamedTuple):
    """A request of HTTP."""

    headers: dict[str, str]
    body: bytes


def title(notices: Sequence[Notice]) -> str:
    """Return one line, of 120 characters at most."""
    if len(notices) == 1:
        [one] = notices
        key = one.alert.key
        about = f" {key.about}" if key.about else ""
        line = f"{_AGAIN[one.kind]}{one.alert.severity}: {key.device or 'hub'} {key.name}{about}"
        return line if len(line) <= TITLE_MAX else f"{line[: TITLE_MAX - 1]}…"
    now_open = Counter(each.alert.severity for each in notices if each.kind != "over")
    parts = [f"{now_open[each]} {each}" for each in reversed(SEVERITIES) if now_open[each]]
    if over := sum(each.kind == "over" for each in notices):
        parts.append(f"{over} over")
    return f"{len(notices)} alerts: {', '.join(parts)}"


def text(notices: Sequence[Notice]) -> str:
    """Return all of it for people: three or four lines a notice, the worst first."""
    return "\n".join("\n".join(_lines(each)) for each in _worst_first(notices)) + "\n"


def inert(said: str) -> str:
    """Return a text that calls nobody and links nowhere where a chat shows it.

    A chat takes `<!channel>` and `@all` of any webhook as a call to everybody in a room; a vehicle may say that.
    """
    for each, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b")):
        said = said.replace(each, instead)
    return said


def webhook_post(message: NoticeMessage, env: str, key: bytes = b"") -> Post:
    """Return the request for a webhook.

    Args:
        message: the notices that go over the channel.
        env: of `[twin]`, that a receiver of several hubs may tell them apart.
        key: with which the body is signed; empty: it is not.
    """
    notices = message.notices
    said: dict[str, Any] = {
        "message": message.id,
        "env": env,
        "title": title(notices),
        # Mattermost, Slack and their like show this much of any webhook.
        "text": inert(f"{title(notices)}\n{text(notices)}"),
        "notices": [
            {
                "id": each.id,
                "kind": each.kind,
                "made_ns": each.made_ns,
                "alert": each.alert.to_json(),
            }
            for each in notices
        ],
    }
    body = json.dumps(said).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": message.id}
    if key:
        digest = hmac.new(key, body, hashlib.sha256).hexdigest()
        headers["X-Backhaul-Signature"] = f"sha256={digest}"
    return Post(headers, body)


def ntfy_post(message: NoticeMessage, topic: str) -> Post:
    """Return the request for an ntfy server: JSON to its root."""
    notices = message.notices
    body = text(notices).strip()
    if len(body.encode()) > NTFY_BYTES_MAX:
        body = body.encode()[:NTFY_BYTES_MAX].decode(errors="ignore") + "\n…"
    now_open = [each.alert.severity for each in notices if each.kind != "over"]
    said = {
        "topic": topic,
        "title": title(notices),
        "message": body,
        "priority": max((_PRIORITY[each] for each in now_open), default=3),
        "tags": ["warning"] if now_open else ["white_check_mark"],
        # A server of 2.16 or later shows what comes twice as one.
        "sequence_id": message.id,
    }
    headers = {"Content-Type": "application/json", "Idempotency-Key": message.id}
    return Post(headers, json.dumps(said).encode())


def mail(message: NoticeMessage, settings: Mail, made_ns: int) -> EmailMessage:
    """Return a mail of plain text; `made_ns` is its date, the same however often it is sent."""
    made = EmailMessage(policy=SMTP)
    local, _, domain = settings.sender.rpartition("@")
    made["From"] = MailAddress("backhaul", username=local, domain=domain)
    made["To"] = ", ".join(settings.to)
    made["Subject"] = f"[backhaul] {title(message.notices)}"
    made["Date"] = datetime.fromtimestamp(made_ns // _SECOND_NS, UTC)
    made["Message-ID"] = f"<{message.id}@{domain}>"
    if len({each.alert.id for each in message.notices}) == 1:
        # All mails about one alert are one conversation.
        made["References"] = f"<{message.notices[0].alert.id}@{domain}>"
    made["Auto-Submitted"] = "auto-generated"
    # Not every server takes eight bits.
    made.set_content(text(message.notices), cte="quoted-printable")
    return made


def _worst_first(notices: Sequence[Notice]) -> list[Notice]:
    return sorted(notices, key=lambda each: (each.kind == "over", -rank(each.alert.severity)))


def _lines(notice: Notice) -> list[str]:
    alert = notice.alert
    late = ", late" if alert.late else ""
    when = f"since {_when(alert.since_ns)}{late}"
    if alert.ended_ns:
        when = f"{when}, over at {_when(alert.ended_ns)} ({alert.ended_why})"
    lines = [title([notice]), f"  {alert.text}", f"  {when}; alert {alert.id}"]
    if alert.hint and not alert.ended_ns:
        lines.append(f"  to do: {alert.hint}")
    return lines


def _when(time_ns: int) -> str:
    return rfc3339(time_ns // _SECOND_NS * _SECOND_NS)
