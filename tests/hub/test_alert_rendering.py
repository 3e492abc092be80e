"""Messages as webhooks, mails and ntfy say them: bounded, escaped, and the same each time."""

from __future__ import annotations

import hashlib
import hmac
import json
from email import message_from_bytes
from email.policy import default
from typing import Any

import msgspec

from backhaul_hub.alert_settings import Mail
from backhaul_hub.alerts.alert import AlertKey
from backhaul_hub.alerts.outbox import NoticeMessage
from backhaul_hub.alerts.rendering import (
    NTFY_BYTES_MAX,
    TITLE_MAX,
    mail,
    ntfy_post,
    title,
    webhook_post,
)
from tests.support.alerting import T0, alert, notice

EVIL = '<script>alert(1)</script>"\\'
MAIL = msgspec.convert(
    {"host": "h", "sender": "hub@example.org", "to": ["a@example.org", "b@example.org"]}, Mail
)


def message(*notices: Any) -> NoticeMessage:
    return NoticeMessage("0123abcd", "a", notices)


def test_one_alert_is_named_in_the_title() -> None:
    assert title([notice()]) == "critical: VID-001 too-hot"
    assert title([notice(kind="over")]) == "over: critical: VID-001 too-hot"
    assert title([notice(kind="repeated")]) == "still critical: VID-001 too-hot"
    own = notice()._replace(alert=alert(AlertKey("health", "", "stream-full", "UP_00")))
    assert title([own]) == "critical: hub stream-full UP_00"


def test_many_alerts_are_counted_in_the_title() -> None:
    some = [notice(1), notice(2, severity="warning"), notice(3, kind="over")]
    assert title(some) == "3 alerts: 1 critical, 1 warning, 1 over"


def test_a_title_is_bounded() -> None:
    long = alert(AlertKey("anomaly", "V" * 63, "n" * 64, "a" * 200))
    assert len(title([notice()._replace(alert=long)])) == TITLE_MAX


def test_a_webhook_is_json_with_each_notice_and_one_name() -> None:
    one = notice(text=EVIL)
    post = webhook_post(message(one, notice(2)), "prod")
    said = json.loads(post.body)
    assert (said["message"], post.headers["Idempotency-Key"], said["env"]) == (
        "0123abcd",
        "0123abcd",
        "prod",
    )
    assert [each["id"] for each in said["notices"]] == [one.id, notice(2).id]
    assert said["notices"][0]["alert"]["text"] == EVIL
    assert said["notices"][0]["alert"]["since"] == "2026-05-01T12:00:00Z"
    assert webhook_post(message(one, notice(2)), "prod") == post
    assert "X-Backhaul-Signature" not in post.headers


def test_a_vehicle_calls_nobody_in_a_chat() -> None:
    post = webhook_post(message(notice(text="<!channel> @all <http://x|y> &lt;")), "prod")
    said = json.loads(post.body)
    assert "&lt;!channel&gt; @\u200ball &lt;http://x|y&gt; &amp;lt;" in said["text"]
    assert said["notices"][0]["alert"]["text"] == "<!channel> @all <http://x|y> &lt;"


def test_a_webhook_is_signed_where_there_is_a_key() -> None:
    post = webhook_post(message(notice()), "prod", b"key")
    digest = hmac.new(b"key", post.body, hashlib.sha256).hexdigest()
    assert post.headers["X-Backhaul-Signature"] == f"sha256={digest}"


def test_a_mail_is_plain_text_with_one_name_and_no_header_of_a_vehicle() -> None:
    made = mail(message(notice(text=EVIL)), MAIL, T0).as_bytes()
    read = message_from_bytes(made, policy=default)
    assert read.get_content_type() == "text/plain"
    assert read["Subject"] == "[backhaul] critical: VID-001 too-hot"
    assert read["To"] == "a@example.org, b@example.org"
    assert read["Message-ID"] == "<0123abcd@example.org>"
    assert read["Auto-Submitted"] == "auto-generated"
    assert read["Date"] == "Fri, 01 May 2026 12:00:00 +0000"
    assert EVIL in read.get_content()
    assert set(read.keys()) == {
        *("From", "To", "Subject", "Date", "Message-ID", "References", "Auto-Submitted"),
        *("Content-Type", "Content-Transfer-Encoding", "MIME-Version"),
    }
    assert all(len(line) <= 998 for line in made.split(b"\r\n"))


def test_a_name_beyond_ascii_goes_into_a_subject() -> None:
    wide = alert(AlertKey("rule", "VID-001", "zu-heiß-☃", ""))
    made = mail(message(notice()._replace(alert=wide)), MAIL, T0).as_bytes()
    assert message_from_bytes(made, policy=default)["Subject"].endswith("zu-heiß-☃")
    assert made.isascii()


def test_ntfy_gets_json_with_a_priority_and_one_name() -> None:
    post = ntfy_post(message(notice(severity="warning"), notice(2, kind="over")), "fleet")
    said = json.loads(post.body)
    assert (said["topic"], said["priority"], said["sequence_id"]) == ("fleet", 4, "0123abcd")
    assert said["title"] == "2 alerts: 1 warning, 1 over"
    assert json.loads(ntfy_post(message(notice(kind="over")), "fleet").body)["priority"] == 3


def test_a_notification_is_bounded_in_bytes_of_whole_characters() -> None:
    post = ntfy_post(message(*(notice(each, text="ß" * 500) for each in range(100))), "fleet")
    said = json.loads(post.body)
    assert len(said["message"].encode()) <= NTFY_BYTES_MAX + 8
    assert said["message"].endswith("ß\n…")


def test_the_worst_comes_first_and_says_what_to_do() -> None:
    some = message(notice(1, severity="info"), notice(2, hint="cool it"), notice(3, kind="over"))
    text = json.loads(webhook_post(some, "prod").body)["text"]
    order = [text.index(each) for each in ("VID-002 too", "VID-001 too", "VID-003 too")]
    assert order == sorted(order)
    assert "to do: cool it" in text
