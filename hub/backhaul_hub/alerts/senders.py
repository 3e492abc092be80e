"""Sending messages: a POST over HTTP, a mail over SMTP. Each within its deadline, and no secret in an error."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from backhaul_codec.strict.toml_values import url_problem
from backhaul_hub.alert_settings import Channel, Mail, Webhook, http_problem
from backhaul_hub.alerts.alert import plain
from backhaul_hub.alerts.outbox import NoticeMessage
from backhaul_hub.alerts.rendering import Post, mail, ntfy_post, webhook_post
from backhaul_hub.alerts.secret_files import read_secret
from backhaul_hub.errors import ConfigError, HubError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANSWER_BYTES, _ANSWER_SHOWN = 2048, 200
_REFUSED = (401, 403)


class DeliveryError(HubError):
    """A message was not taken, as far as is known: it may be sent again under the same id."""

    def __init__(self, message: str, *, hint: str = "", after_s: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.after_s = after_s
        """Seconds after which the receiver wants to be asked again; 0: it has not said."""


class Delivered(NamedTuple):
    """A message was taken; `refused`: the receivers that refused it, of several, and why."""

    refused: str = ""


class Sender:
    """Sends over one channel.

    Args:
        name: of the channel.
    """

    def __init__(self, name: str, channel: Channel, directory: Path, env: str) -> None:
        self._name = name
        self._channel = channel
        self._directory = directory
        self._env = env

    async def send(self, message: NoticeMessage) -> Delivered:
        """Send a message, and return once the receiver has taken it.

        Raises:
            DeliveryError: it was not taken, or nobody knows; the error says what mends it.
        """
        try:
            async with asyncio.timeout(self._channel.timeout_s):
                if isinstance(self._channel, Mail):
                    return await self._mail(self._channel, message)
                return await self._post(self._channel, message)
        except ConfigError as error:
            raise DeliveryError(error.message, hint=error.hint) from error
        except TimeoutError:
            raise DeliveryError(
                f"no answer within {self._channel.timeout_s:g} s", hint=self._hint()
            ) from None

    async def _post(self, channel: Channel, message: NoticeMessage) -> Delivered:
        import aiohttp

        assert not isinstance(channel, Mail)
        token = self._secret(channel.token_file)
        if isinstance(channel, Webhook):
            url = self._secret(channel.url_file) or channel.url
            post = webhook_post(message, self._env, self._secret(channel.signing_file).encode())
        else:
            url = channel.url
            post = ntfy_post(message, self._secret(channel.topic_file) or channel.topic)
        if problem := http_problem(url, secret=bool(channel.secret_files)):
            if url_problem(url):  # its words quote the address, which may be the secret
                problem = "it is of no use; one that is: https://example.org/in"
            raise ConfigError(
                f"its address: {problem}", hint=self._hint(refused=url != channel.url)
            )
        if token:
            post.headers["Authorization"] = f"Bearer {token}"
        try:
            # No proxy and no .netrc of this machine: a secret goes where hub.toml says.
            connector = aiohttp.TCPConnector(ssl=self._tls())
            async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
                return await self._answer(session, url, post)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The address may be a secret: of the error no more than its kind and the system's words.
            raise DeliveryError(_of_connection(error), hint=self._hint()) from None

    async def _answer(self, session: object, url: str, post: Post) -> Delivered:
        import aiohttp

        assert isinstance(session, aiohttp.ClientSession)
        async with session.post(
            url, data=post.body, headers=post.headers, allow_redirects=False
        ) as answer:
            said = await answer.content.read(_ANSWER_BYTES)
            if 200 <= answer.status < 300:
                return Delivered()
            what = (
                f"it answers {answer.status} {plain(said.decode(errors='replace'), _ANSWER_SHOWN)}"
            )
            raise DeliveryError(
                what.strip(),
                hint=self._hint(refused=answer.status in _REFUSED),
                after_s=_seconds(answer.headers),
            )

    async def _mail(self, channel: Mail, message: NoticeMessage) -> Delivered:
        import aiosmtplib

        password = self._secret(channel.password_file)
        made = mail(message, channel, max(each.made_ns for each in message.notices))
        try:
            refused, _ = await aiosmtplib.send(
                made,
                sender=channel.sender,
                recipients=channel.to,
                hostname=channel.host,
                port=channel.port,
                username=channel.user or None,
                password=password or None,
                use_tls=channel.tls == "tls",
                start_tls=channel.tls == "starttls",
                tls_context=self._tls() if channel.tls != "none" else None,
                timeout=channel.timeout_s,
            )
        except aiosmtplib.SMTPAuthenticationError as error:
            raise DeliveryError(_of_mail(error), hint=self._hint(refused=True)) from None
        except (aiosmtplib.SMTPException, OSError) as error:
            raise DeliveryError(_of_mail(error), hint=self._hint()) from None
        some = [f"{who}: {plain(str(why), 100)}" for who, why in sorted(refused.items())]
        return Delivered(plain("refused " + "; ".join(some), 400) if some else "")

    def _secret(self, file: str) -> str:
        return read_secret(self._directory, file)

    def _tls(self) -> ssl.SSLContext:
        ca = self._channel.ca
        try:
            return ssl.create_default_context(cafile=str(self._directory / ca) if ca else None)
        except OSError as error:
            raise ConfigError(
                f"{self._directory / ca}: {error}", hint="give it the right ca"
            ) from error

    def _hint(self, *, refused: bool = False) -> str:
        """Return the remedy, with the command that tries it."""
        files = " or ".join(self._channel.secret_files)
        first = f"renew the secret in {files}, then: " if refused and files else ""
        return f"{first}backhaul-hub notify test {self._name}"


def _of_connection(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        inner = error.certificate_error if hasattr(error, "certificate_error") else error
        return f"its certificate is not believed: {plain(str(inner), _ANSWER_SHOWN)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or str(error.os_error)
        return f"it cannot be reached: {plain(reason, _ANSWER_SHOWN)}"
    return f"the connection failed: {type(error).__name__}"


def _of_mail(error: Exception) -> str:
    return f"the mail server: {plain(str(error) or type(error).__name__, _ANSWER_SHOWN)}"


def _seconds(headers: Mapping[str, str]) -> float:
    """Return the seconds of `Retry-After`; 0 where it has none, or a date."""
    said = headers.get("Retry-After", "")
    return float(said) if said.isascii() and said.isdigit() and len(said) < 7 else 0.0
