"""Becoming one of a hub's vehicles with a one-time token: which key asks, and asking until answered.

The key is made here, kept on disk before anybody hears of it, and asked with again after any
interruption; the hub answers the same key alike as often as it asks. So every step may be repeated.
"""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import nkeys
from nats.errors import Error as NatsError

from backhaul_agent.errors import EnrolmentFailedError
from backhaul_codec.protocol.credentials import CredentialsError, parse_credentials, parse_seed
from backhaul_codec.protocol.enrolment import (
    EnrolmentError,
    EnrolmentRefused,
    read_answer,
    request_subject,
    write_request,
)
from backhaul_codec.strict.json import JsonError, read_typed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nats.aio.client import Client

    from backhaul_codec.protocol.credentials import Credentials
    from backhaul_codec.protocol.enrolment import Token
    from backhaul_codec.protocol.identity import Identity
    from backhaul_runtime.clock import Clock

    Request: TypeAlias = Callable[[str, bytes, float], Awaitable[bytes]]

# An answer may be lost at once, or take its time: two seconds at 600 ms of round trip and 20 kbit/s.
ANSWER_S_MIN, ANSWER_S_MAX = 1.0, 10.0
RETRY_S = 0.5
# So many in a row are not a hub that is just starting.
LOGINS_MAX = 4
LOGIN_REFUSED = "Authorization Violation"


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The record of the last token on disk: its id, and the key until it is in device.creds."""

    token: str
    seed: str = ""

    def __repr__(self) -> str:
        return f"Attempt({self.token!r})"


def write_attempt(attempt: Attempt) -> str:
    """Return the record on disk."""
    return msgspec.json.encode(attempt).decode() + "\n"


def key_for(token: Token, attempt: str | None, creds: str | None) -> Credentials:
    """Return the key that asks with a token: that of an earlier attempt, or a new one.

    ``attempt``: what is kept of the last one, None: nothing. ``creds``: this vehicle's login as it
    is, None: it has none.

    Raises:
        EnrolmentFailedError: the token was used here, and the key that used it is gone.
    """
    known = _read_attempt(attempt)
    if known is None or known.token != token.id:
        return new_key()
    try:
        return parse_seed(known.seed) if known.seed else parse_credentials(creds or "")
    except CredentialsError as error:
        raise EnrolmentFailedError(
            f"this vehicle has used the token before, and its key is lost: {error}",
            hint=f"at the hub: backhaul-hub revoke {token.device}, then enrol {token.device}",
        ) from error


def new_key() -> Credentials:
    """Make a user's key."""
    seed: bytes = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return parse_seed(seed.decode())


async def ask(
    token: Token,
    key: Credentials,
    request: Request,
    clock: Clock,
    *,
    wait_s: float,
    complaints: Callable[[], Sequence[str]],
    report: Callable[[str], None],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Identity:
    """Ask until there is an answer, over a link that may come and go.

    Args:
        token: what the hub gave.
        key: this vehicle's, which the hub is to know it by.
        request: sends one question and returns its answer, or fails after so many seconds.
        clock: for the deadline.
        wait_s: for so long at most, in seconds.
        complaints: says what has been wrong with the link so far, the last last.
        report: is told why there is no answer yet, once for each reason.
        pause: waits for so many seconds.

    Raises:
        EnrolmentFailedError: the hub refuses, with its reason; or did not answer in time.
    """
    body = write_request(token.id, key)
    deadline_s = clock.monotonic_s() + wait_s
    trouble = ""
    answer_s = ANSWER_S_MIN
    while True:
        try:
            said = await request(request_subject(token.id), body, answer_s)
            answer = read_answer(said, token.device)
        except (NatsError, TimeoutError, EnrolmentError) as error:
            now = next(reversed(complaints()), "") or str(error) or "no answer"
        else:
            if not isinstance(answer, EnrolmentRefused):
                return answer
            if not answer.passes:
                raise _refused(answer, token.device)
            now = answer.message
        if now != trouble:
            report(f"not answered yet: {now}")
        trouble = now
        if _refused_in_a_row(complaints()) >= LOGINS_MAX:
            raise _login_refused(token, clock.now_ns())
        if clock.monotonic_s() >= deadline_s:
            raise EnrolmentFailedError(
                f"no answer from the hub in {wait_s:g} s: {trouble}",
                hint="run it again when there is a link, and the hub's control plane runs;"
                " the token is not lost",
            )
        answer_s = min(ANSWER_S_MAX, answer_s * 2)
        await pause(RETRY_S)


def _refused_in_a_row(complaints: Sequence[str]) -> int:
    """Count the logins that were refused last. One of long ago is no reason to give up."""
    others = [at for at, each in enumerate(complaints, 1) if LOGIN_REFUSED not in each]
    return len(complaints) - max(others, default=0)


def requester(client: Client) -> Request:
    """Return a function that sends a question over a connection and waits for the answer."""

    async def request(subject: str, body: bytes, wait_s: float) -> bytes:
        message = await client.request(subject, body, timeout=wait_s)
        return message.data

    return request


def _refused(answer: EnrolmentRefused, device: str) -> EnrolmentFailedError:
    again = f"at the hub: backhaul-hub enrol {device} makes another token"
    if answer.code in ("used", "enrolled", "old_key"):
        again = f"if that is not meant: backhaul-hub revoke {device}, then enrol {device}"
    return EnrolmentFailedError(f"the hub refuses: {answer.message}", hint=again, code=answer.code)


def _login_refused(token: Token, now_ns: int) -> EnrolmentFailedError:
    at = f"{datetime.fromtimestamp(token.expires_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    expired = now_ns >= token.expires_s * 1_000_000_000
    why = f"it has expired at {at}" if expired else f"it is of another hub, or expired ({at})"
    return EnrolmentFailedError(
        f"the hub does not let this token in: {why}",
        hint=f"at the hub: backhaul-hub enrol {token.device} makes another token",
        code="expired" if expired else "foreign",
    )


def _read_attempt(text: str | None) -> Attempt | None:
    try:
        return read_typed(text or "", Attempt)
    except JsonError:
        # Nothing, or damaged: a key that nobody can read any more has to be made anew.
        return None
