"""Answering requests on core NATS: a JSON object each way, a refusal as `{"error": {...}}`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import msgspec
import nats.micro
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_codec import CodecError
from backhaul_codec.subjects import SubjectError
from backhaul_hub.errors import HubError

log = structlog.get_logger(__name__)


async def respond_to(client: Client, message: Msg, answer: Callable[[Msg], Awaitable[Any]]) -> None:
    """Answer one request, also after an error; an answer too large for a message is refused."""
    try:
        said = await answer(message)
    except HubError as error:
        said = _refusal(error.message, error.hint)
    except (CodecError, SubjectError, msgspec.DecodeError) as error:
        said = _refusal(str(error))
    except Exception as error:  # noqa: BLE001 - who asked is answered, and the control plane goes on
        said = _unforeseen(message.subject, error)
    try:
        body = msgspec.json.encode(said)
    except Exception as error:  # noqa: BLE001 - as above: an answer that cannot be written is none
        body = msgspec.json.encode(_unforeseen(message.subject, error))
    if len(body) > client.max_payload:
        refusal = _refusal(f"the answer has {len(body)} bytes", "ask for less of it")
        body = msgspec.json.encode(refusal)
    try:
        await message.respond(body)
    except NatsError as error:
        log.warning("not_answered", subject=message.subject, error=repr(error))


async def announce(
    client: Client, name: str, subject: str, respond: Callable[[Any], Awaitable[None]]
) -> None:
    """Have requests on a subject answered, as an endpoint of the service, while the connection lives."""
    service = await nats.micro.add_service(
        client,
        name="backhaul-hub",
        version=version("backhaul"),
        description="Control plane of the hub",
    )
    await service.add_endpoint(name=name, subject=subject, handler=respond)


def _unforeseen(subject: str, error: Exception) -> dict[str, Any]:
    log.error("question_failed", subject=subject[:200], exc_info=error)
    return _refusal("a fault of the hub, not of this question", "its log has the traceback")


def _refusal(message: str, hint: str = "") -> dict[str, Any]:
    return {"error": {"message": message, "hint": hint}}
