"""Quarantining garbage: a copy of each unreadable message of UP, with the reason."""

from __future__ import annotations

import structlog

from backhaul_hub.continuity.examine import UnreadableError
from backhaul_hub.errors import JetStreamError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import Stored
from backhaul_runtime.jetstream import WRONG_LAST_SEQUENCE

log = structlog.get_logger(__name__)

# The rest stays in UP; the copy and its headers must fit into one message.
_BODY_BYTES_MAX = 1 << 20


async def set_aside(
    api: JetStreamApi, stream: str, created: str, message: Stored, error: UnreadableError
) -> None:
    """Publish a copy of `message` to QUARANTINE; once, however often that stretch is read.

    Raises:
        HubError: the server refused, or did not answer.
    """
    log.warning(
        "quarantined",
        stream=stream,
        seq=message.seq,
        subject=message.subject,
        reason=error.reason,
    )
    try:
        await api.publish(
            # A stream that was made anew counts its sequences anew.
            f"quarantine.{stream}.{_digits(created)}.{message.seq}",
            message.body[:_BODY_BYTES_MAX],
            {
                "Backhaul-Size": str(len(message.body)),
                "Backhaul-Subject": message.subject,
                "Backhaul-Code": error.code,
                "Backhaul-Reason": error.reason.replace("\n", " "),
                "Nats-Expected-Last-Subject-Sequence": "0",
            },
        )
    except JetStreamError as refused:
        if refused.err_code != WRONG_LAST_SEQUENCE:
            raise


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())
