"""The part of the JetStream API that all of us need: its answers, its numbers of errors, its times. Pure.

Requests and answers stay dictionaries: nats-py's typed configurations do not know all that the server does.
"""

from __future__ import annotations

from base64 import b64decode
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

API = "$JS.API"
NOT_FOUND = 404
STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
WRONG_LAST_SEQUENCE = 10071
INSUFFICIENT_STORAGE = 10047
MESSAGE_NOT_FOUND = 10037
CLUSTER_NOT_AVAILABLE = 10008
NO_SUITABLE_PEERS = 10005
TOO_FEW_PEERS = 10023
SUBJECTS_OVERLAP = 10065
REPLICAS_NOT_SUPPORTED = 10074
ACCOUNT_NOT_ENABLED = 10039
STREAM_NOT_MADE = 10049
"""For whatever reason, as one that a file cannot be written."""

# A server that restarts with a first_seq above the stream's first message purges the stream.
_AT_CREATION = frozenset({"first_seq"})
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class StreamMessage(NamedTuple):
    """A message as a stream holds it, by the word of the stream's leader."""

    seq: int
    subject: str
    data: bytes
    headers: bytes = b""
    time: str = ""
    """When the stream took it in, as the server writes it: see `stamp_ns`."""


class Refusal(NamedTuple):
    """The server's error: its code as in HTTP, its own number, and its words."""

    code: int
    err_code: int
    description: str


def read_answer(data: bytes) -> tuple[dict[str, Any], Refusal | None]:
    """Return the answer to a request of the API, and the error in it, if it has one."""
    try:
        answer = _decode(data)
    except msgspec.DecodeError as error:
        return {}, Refusal(0, 0, f"the answer is not JSON: {error}")
    if not (failed := answer.get("error")):
        return answer, None
    code, err_code = int(failed.get("code", 0)), int(failed.get("err_code", 0))
    return answer, Refusal(code, err_code, str(failed.get("description", "")))


def message_in(answer: dict[str, Any]) -> StreamMessage:
    """Return the message in an answer to STREAM.MSG.GET. Raises: ValueError: its bytes are no base64."""
    said = answer["message"]
    data, headers = (b64decode(said.get(name) or "", validate=True) for name in ("data", "hdrs"))
    return StreamMessage(
        int(said["seq"]), str(said.get("subject", "")), data, headers, str(said.get("time", ""))
    )


def lasting(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a stream's configuration that goes with each update, not only with its creation."""
    return {key: value for key, value in config.items() if key not in _AT_CREATION}


def covers(current: Any, wanted: Any) -> bool:
    """Return whether everything in `wanted` is so in `current`, which may say more."""
    if isinstance(wanted, dict):
        return isinstance(current, dict) and all(
            covers(current.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(current, list)
            and len(current) == len(wanted)
            and all(map(covers, current, wanted))
        )
    # The server leaves out what is empty: a missing field and "" or 0 are the same.
    return bool(current == wanted or (not current and not wanted))


def stamp_ns(text: str) -> int:
    """Convert the server's time stamp (RFC 3339, up to nine decimals) to ns since the epoch."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return _whole_s(whole) * 1_000_000_000 + int(fraction.ljust(9, "0"))


@lru_cache(1024)
def _whole_s(text: str) -> int:
    return int(datetime.fromisoformat(text + "+00:00").timestamp())
