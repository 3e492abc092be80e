"""What the OUT streams on a leaf hold, read back in full for comparisons."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from backhaul_codec import Kind, Message, Point, decode, hash_of, peek
from backhaul_codec.subjects import parse_leaf

if TYPE_CHECKING:
    from nats.aio.client import Client


MARK = "e.mark"
CLOCK = "e.clock"


class Found(NamedTuple):
    """One message of a stream."""

    stream_seq: int
    subject: str
    message: Message


async def watermark(client: Client, lane: str, seq: int, epoch: int = 42) -> bytes:
    """Return the hub's word that it holds a lane up to a seq, as OUT has its messages."""
    state = (await _api(client, f"STREAM.INFO.OUT_{lane}", {}))["state"]
    for stream_seq in range(state["last_seq"], state["first_seq"] - 1, -1):
        stored = (await _api(client, f"STREAM.MSG.GET.OUT_{lane}", {"seq": stream_seq}))["message"]
        body = base64.b64decode(stored["data"])
        header = peek(body)
        if (header.epoch, header.seq) == (epoch, seq):
            own = hash_of(stored["subject"], body).hex()
            return json.dumps({"epoch": epoch, "seq": seq, "hash": own}).encode()
    raise AssertionError(f"OUT_{lane} has no message {seq} of epoch {epoch}")


async def read_stream(client: Client, stream: str) -> list[Found]:
    """Return every message of a stream, decoded, in order."""
    info = await _api(client, f"STREAM.INFO.{stream}", {})
    state = info["state"]
    found = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = await _api(client, f"STREAM.MSG.GET.{stream}", {"seq": seq})
        stored = answer["message"]
        subject = stored["subject"]
        place = parse_leaf(subject)
        message = decode(
            base64.b64decode(stored["data"]),
            node=place.node or "",
            type=place.type,
            key=place.key or "",
        )
        found.append(Found(seq, subject, message))
    return found


async def points_of(client: Client, stream: str) -> list[Point]:
    """Return the points of a stream, without the agent's own marks."""
    messages = [each for each in await read_stream(client, stream) if each.subject != MARK]
    return [point for found in messages for point in found.message.points]


def assert_no_holes(found: list[Found]) -> None:
    """One epoch after the other, and in each seqs 1, 2, 3 … in stream order."""
    places = [(item.message.epoch, item.message.seq) for item in found]
    epochs = dict.fromkeys(epoch for epoch, _ in places)
    counts = {epoch: sum(each == epoch for each, _ in places) for epoch in epochs}
    assert places == [(epoch, seq) for epoch in epochs for seq in range(1, counts[epoch] + 1)]


def frames(found: list[Found]) -> list[Found]:
    return [item for item in found if item.message.kind is Kind.FRAME]


async def _api(client: Client, request: str, body: dict[str, Any]) -> dict[str, Any]:
    message = await client.request(f"$JS.API.{request}", json.dumps(body).encode(), timeout=30)
    answer: dict[str, Any] = json.loads(message.data)
    assert "error" not in answer, answer
    return answer
