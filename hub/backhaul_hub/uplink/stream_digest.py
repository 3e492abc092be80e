"""A stream's contents, as digests of its blocks: made where it is, compared where it was put back.

A block is a stretch of `BLOCK_SEQS` sequences. Its digest is of sequence, time, subject and body of
every message, so one that was lost, added, moved or altered shows, and where.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import msgspec
from nats.aio.client import Client

from backhaul_hub.nats.jetstream import Json
from backhaul_hub.nats.stream_reader import Stored, StoredReader
from backhaul_hub.uplink.audit import stream_state

BLOCK_SEQS = 8192
_BATCH_MESSAGES = 512


class Block(msgspec.Struct, frozen=True):
    """The messages from one sequence to another, both included."""

    low: int
    high: int
    messages: int
    sha256: str


def ranges(first: int, last: int) -> list[tuple[int, int]]:
    """Divide sequences `first` to `last` into blocks that end where all streams' blocks end."""
    found = []
    while first <= last:
        high = min(last, first // BLOCK_SEQS * BLOCK_SEQS + BLOCK_SEQS - 1)
        found.append((first, high))
        first = high + 1
    return found


async def digest_blocks(
    client: Client,
    stream: str,
    blocks: Iterable[tuple[int, int]],
    progress: Callable[[int], None] = lambda count: None,
) -> list[Block]:
    """Read these stretches of a stream; `progress` is told of messages read.

    Raises:
        HubError: the stream or the server is not there.
    """
    reader = StoredReader(client, stream, timeout_s=30.0)
    found = []
    for low, high in blocks:
        digest, seq, count = hashlib.sha256(), low, 0
        while seq <= high:
            read = await reader.read(seq, min(_BATCH_MESSAGES, high - seq + 1))
            messages = [message for message in read if message.seq <= high]
            for message in messages:
                digest.update(_record(message))
            count += len(messages)
            progress(len(messages))
            if len(messages) < len(read) or not read:
                break
            seq = read[-1].seq + 1
        found.append(Block(low, high, count, digest.hexdigest()))
    return found


def _record(message: Stored) -> bytes:
    # JSON of a list: where one field ends and the next begins is never in doubt.
    head = [message.seq, message.stored_ns, message.subject, len(message.body)]
    return msgspec.json.encode(head) + message.body


def compare(expected: Sequence[Block], found: Sequence[Block]) -> str:
    """Return the differences between blocks of the same stretches, in words; "" where there are none."""
    for wanted, is_there in zip(expected, found, strict=True):
        if wanted != is_there:
            lost = wanted.messages - is_there.messages
            what = f"{lost} messages fewer" if lost > 0 else "other messages"
            return f"{what} between sequence {wanted.low} and {wanted.high}"
    return ""


async def differs(client: Client, state: Json, blocks: Sequence[Block], info: Json) -> str:
    """Return the changes of a stream, in words; "" where there are none.

    Args:
        client: connected to where it was put.
        state: of its snapshot. What age has taken since is no difference.
        blocks: what it held.
        info: of the stream as it is.

    Raises:
        HubError: the stream or the server is not there.
    """
    grows = bool(info["config"].get("sources"))
    if wrong := state_differs(state, info, grows=grows):
        return wrong
    wanted = [block for block in blocks if block.low >= info["state"]["first_seq"]]
    stretches = [(block.low, block.high) for block in wanted]
    return compare(wanted, await digest_blocks(client, info["config"]["name"], stretches))


def state_differs(expected: Json, info: Json, *, grows: bool) -> str:
    """Return the changes of a stream's numbers, in words; "" where there are none.

    Args:
        expected: `state` of the snapshot.
        info: of the stream that was put back. What age took since is no difference.
        grows: whether it has sources, which may have brought more since.
    """
    state = stream_state(info)
    last = expected["last_seq"]
    if state.last_seq < last or (state.last_seq > last and not grows):
        return f"it ends at sequence {state.last_seq}, not {last}"
    if state.age_ns_max:
        return ""
    first, count = expected["first_seq"], expected["messages"]
    if count and state.first_seq != first:
        return f"it begins at sequence {state.first_seq}, not {first}"
    found = info["state"]["messages"] - (state.last_seq - last)
    if found != count:
        return f"it holds {found} messages, not {count}"
    return ""


def still_there(blocks: list[Block], before: Json, after: Json) -> list[Block]:
    """Return the blocks that were whole from before the snapshot until they were read. Pure.

    From the front of a stream limits take messages all the time. Where they are taken from the
    middle, only a stream that stood still says what its snapshot holds.
    """
    config, was, now = after["config"], before["state"], after["state"]
    if was.get("num_deleted", 0) != now.get("num_deleted", 0):
        return []
    newest_only = config.get("max_msgs_per_subject", -1) > 0 or config.get("allow_rollup_hdrs")
    if (newest_only or config["retention"] != "limits") and was != now:
        return []
    return [block for block in blocks if block.low >= now["first_seq"]]
