"""What alerts are sent to, on loopback: an HTTP server and a mail server, each of which may fail as it is told."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.policy import default
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from email.message import EmailMessage


@dataclass
class HttpReceiver:
    """Takes POSTs; `answers` are given first, in order, then 200."""

    port: int = 0
    taken: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    """Headers and bodies of those that were answered 200."""
    tried: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of all."""
    answers: list[web.Response] = field(default_factory=list)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is not set nobody is answered."""

    def __post_init__(self) -> None:
        self.hold.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        """Return the names of the messages that were taken."""
        return [headers["Idempotency-Key"] for headers, _ in self.taken]

    def told(self) -> list[str]:
        """Return the notices that were taken, as `kind device name`."""
        return [
            f"{each['kind']} {each['alert']['device'] or '(hub)'} {each['alert']['name']}"
            for _, body in self.taken
            for each in body["notices"]
        ]

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.tried.append(body)
        await self.hold.wait()
        if self.answers:
            return self.answers.pop(0)
        self.taken.append((dict(request.headers), body))
        return web.Response(text="ok")


@asynccontextmanager
async def http_receiver(
    tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[HttpReceiver]:
    """Serve, on a port of its own or this one."""
    receiver = HttpReceiver()
    app = web.Application()
    app.router.add_post("/{rest:.*}", receiver.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
        await site.start()
        receiver.port = runner.addresses[0][1]
        yield receiver
    finally:
        receiver.hold.set()
        await runner.cleanup()


@dataclass
class MailReceiver:
    """Takes mails."""

    port: int = 0
    taken: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    """Receivers and contents."""
    refuses: dict[str, str] = field(default_factory=dict)
    """Answers to RCPT, by address."""
    answer: str = "250 taken"
    """To the content."""
    logins: list[tuple[str, str]] = field(default_factory=list)
    password: str = ""
    """The one that is right; empty: nobody logs in."""

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if refused := self.refuses.get(address):
            return refused
        envelope.rcpt_tos.append(address)
        return "250 fine"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.answer.startswith("2"):
            assert isinstance(envelope.content, bytes)
            made = message_from_bytes(envelope.content, policy=default)
            self.taken.append((list(envelope.rcpt_tos), made))
        return self.answer

    def authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, kind: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=self.logins[-1][1] == self.password, handled=False)


@asynccontextmanager
async def mail_receiver(
    tls: ssl.SSLContext | None = None, *, password: str = "", starttls: bool = True
) -> AsyncIterator[MailReceiver]:
    """Serve: with STARTTLS where `tls` is given, or TLS from the first byte; with a login where there is a password."""
    receiver = MailReceiver(password=password)

    def protocol() -> SMTP:
        return SMTP(
            receiver,
            hostname="receiver",
            tls_context=tls if starttls else None,
            require_starttls=tls is not None and starttls,
            authenticator=receiver.authenticate if password else None,
            auth_required=bool(password),
            auth_require_tls=tls is not None and starttls,
        )

    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=None if starttls else tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()
