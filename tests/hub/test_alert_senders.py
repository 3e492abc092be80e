"""Sending to real servers on loopback: taken, refused, slow, not believed; and no secret in any error."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiohttp import web

from backhaul_hub.alert_settings import Channel
from backhaul_hub.alerts.outbox import NoticeMessage
from backhaul_hub.alerts.senders import DeliveryError, Sender
from backhaul_hub.timestamps import utc
from backhaul_runtime.clock import SystemClock
from tests.support.alerting import notice
from tests.support.receivers import http_receiver, mail_receiver

from .certificates import own

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
MESSAGE = NoticeMessage("0123abcd", "a", [notice()])
TOKEN = "t0p-s3cret"


def sender(directory: Path, **settings: Any) -> Sender:
    return Sender("a", msgspec.convert(settings, Channel), directory, "prod")


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(TOKEN)
    return "token"


async def error_of(some: Sender) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        await some.send(MESSAGE)
    assert TOKEN not in str(caught.value)
    return caught.value


async def test_a_webhook_takes_a_message(tmp_path: Path, secret: str) -> None:
    async with http_receiver() as receiver:
        some = sender(tmp_path, kind="webhook", url=receiver.url, token_file=secret)
        assert await some.send(MESSAGE) == ("",)
        [(headers, body)] = receiver.taken
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert (headers["Idempotency-Key"], body["message"]) == ("0123abcd", "0123abcd")
    assert receiver.told() == ["raised VID-001 too-hot"]


async def test_ntfy_takes_a_message(tmp_path: Path, secret: str) -> None:
    async with http_receiver() as receiver:
        url = f"http://127.0.0.1:{receiver.port}"
        await sender(tmp_path, kind="ntfy", url=url, topic="fleet", token_file=secret).send(MESSAGE)
        [(headers, body)] = receiver.taken
    assert (body["topic"], body["title"]) == ("fleet", "critical: VID-001 too-hot")
    assert headers["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("status", [301, 400, 404, 500])
async def test_a_refusal_says_what_was_answered_and_how_to_try(tmp_path: Path, status: int) -> None:
    async with http_receiver() as receiver:
        text = "no\x1b[31m" + "x" * 5000
        receiver.answers = [web.Response(status=status, text=text, headers={"Location": "/else"})]
        error = await error_of(sender(tmp_path, kind="webhook", url=receiver.url))
    assert error.message.startswith(f"it answers {status} no [31mxxx")
    assert len(error.message) < 250
    assert error.hint == "backhaul-hub notify test a"
    assert len(receiver.tried) == 1, "a redirection is not followed"


async def test_a_refused_secret_is_to_be_renewed(tmp_path: Path, secret: str) -> None:
    async with http_receiver() as receiver:
        receiver.answers = [web.Response(status=401)]
        some = sender(tmp_path, kind="webhook", url=receiver.url, token_file=secret)
        error = await error_of(some)
        assert error.hint == "renew the secret in token, then: backhaul-hub notify test a"
        # It is read anew each time: no restart is needed.
        (tmp_path / "token").write_text("another")
        await some.send(MESSAGE)
    assert receiver.taken[0][0]["Authorization"] == "Bearer another"


async def test_a_receiver_that_is_busy_says_for_how_long(tmp_path: Path) -> None:
    async with http_receiver() as receiver:
        receiver.answers = [
            web.Response(status=429, headers={"Retry-After": "77"}),
            web.Response(status=429, headers={"Retry-After": "Fri, 01 May 2026 12:00:00 GMT"}),
        ]
        some = sender(tmp_path, kind="webhook", url=receiver.url)
        assert (await error_of(some)).after_s == 77
        assert (await error_of(some)).after_s == 0


async def test_an_answer_that_does_not_come_ends_at_the_deadline(tmp_path: Path) -> None:
    async with http_receiver() as receiver:
        receiver.hold.clear()
        some = sender(tmp_path, kind="webhook", url=receiver.url, timeout_s=0.3)
        assert (await error_of(some)).message == "no answer within 0.3 s"


async def test_nobody_there_is_said(tmp_path: Path) -> None:
    async with http_receiver() as receiver:
        url = receiver.url
    error = await error_of(sender(tmp_path, kind="webhook", url=url))
    assert error.message.startswith("it cannot be reached: ")


async def test_an_address_that_is_a_secret_is_in_no_error(tmp_path: Path, secret: str) -> None:
    async with http_receiver() as receiver:
        (tmp_path / "token").write_text(f"http://127.0.0.1:{receiver.port}/{TOKEN}")
        some = sender(tmp_path, kind="webhook", url_file=secret)
        await some.send(MESSAGE)
    await error_of(some)
    (tmp_path / "token").write_text(f"http://example.org/{TOKEN}")
    assert "over https alone" in (await error_of(some)).message
    (tmp_path / "token").write_text(f"http://127.0.0.1:1:2/{TOKEN}")
    await error_of(some)


async def test_a_certificate_must_be_believed(tmp_path: Path) -> None:
    made = own(tmp_path / "own", "localhost", "127.0.0.1", now=utc(SystemClock()))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(made.certificate, made.key)
    async with http_receiver(tls) as receiver:
        url = f"https://localhost:{receiver.port}/"
        error = await error_of(sender(tmp_path, kind="webhook", url=url))
        assert error.message.startswith("its certificate is not believed: ")
        assert receiver.tried == []
        await sender(tmp_path, kind="webhook", url=url, ca=str(made.ca)).send(MESSAGE)
    assert receiver.ids == ["0123abcd"]


def mailer(directory: Path, port: int, **more: Any) -> Sender:
    settings = {"kind": "smtp", "host": "localhost", "port": port, "sender": "hub@example.org"}
    to = {"to": ["ops@example.org", "boss@example.org"], "tls": "none", "timeout_s": 5.0}
    return sender(directory, **(settings | to | more))


async def test_a_mail_server_takes_a_mail(tmp_path: Path) -> None:
    async with mail_receiver() as receiver:
        assert await mailer(tmp_path, receiver.port).send(MESSAGE) == ("",)
    [(to, made)] = receiver.taken
    assert to == ["ops@example.org", "boss@example.org"]
    assert made["Message-ID"] == "<0123abcd@example.org>"
    assert made["Subject"] == "[backhaul] critical: VID-001 too-hot"


async def test_a_mail_that_a_part_of_its_receivers_is_refused_has_left(tmp_path: Path) -> None:
    async with mail_receiver() as receiver:
        receiver.refuses = {"boss@example.org": "550 nobody of that name"}
        delivered = await mailer(tmp_path, receiver.port).send(MESSAGE)
    assert "refused boss@example.org: " in delivered.refused
    assert "nobody of that name" in delivered.refused
    assert receiver.taken[0][0] == ["ops@example.org"]


async def test_a_mail_that_is_refused_says_why(tmp_path: Path) -> None:
    async with mail_receiver() as receiver:
        receiver.answer = "452 the disk is full"
        error = await error_of(mailer(tmp_path, receiver.port))
    assert "the disk is full" in error.message
    assert error.hint == "backhaul-hub notify test a"


async def test_a_login_goes_over_tls_and_its_refusal_names_the_file(
    tmp_path: Path, secret: str
) -> None:
    made = own(tmp_path / "own", "localhost", "127.0.0.1", now=utc(SystemClock()))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(made.certificate, made.key)
    login = {"user": "hub", "password_file": secret, "ca": str(made.ca), "tls": "starttls"}
    async with mail_receiver(tls, password=TOKEN) as receiver:
        some = mailer(tmp_path, receiver.port, **login)
        await some.send(MESSAGE)
        assert receiver.logins == [("hub", TOKEN)]
        receiver.password = "another"
        assert (await error_of(some)).hint.startswith("renew the secret in token, then: ")
        error = await error_of(mailer(tmp_path, receiver.port, **(login | {"ca": ""})))
        assert "certificate verify failed" in error.message
    assert len(receiver.taken) == 1


async def test_a_mail_server_that_says_nothing_ends_at_the_deadline(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    error = await error_of(mailer(tmp_path, port, timeout_s=0.3))
    assert "0.3 s" in error.message or "time" in error.message.lower()
    await gone.wait()
    server.close()


async def test_a_secret_that_others_may_read_is_not_used(tmp_path: Path, secret: str) -> None:
    (tmp_path / "token").chmod(0o644)
    async with http_receiver() as receiver:
        error = await error_of(
            sender(tmp_path, kind="webhook", url=receiver.url, token_file=secret)
        )
    assert "chmod 600" in error.hint
    assert receiver.tried == []
    assert json.dumps(str(error))
