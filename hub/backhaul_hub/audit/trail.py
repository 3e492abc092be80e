"""Reading the audit log: its entries, and whether the chain is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nats.aio.client import Client

from backhaul_hub.audit.entry import NONE, AuditChain, AuditEntry, Breach, digest
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.streams.streams import AUDIT

_READ_MESSAGES = 512


class TrailVerdict(NamedTuple):
    """The result of a check."""

    messages: int
    entries: int
    breaches: list[Breach]

    def words(self) -> str:
        """Return the breaches in words; empty: there is none."""
        if not self.breaches:
            return ""
        seq, kind = self.breaches[0]
        return f"{kind} at message {seq:,}, and {len(self.breaches) - 1} more breaches"


async def follow(
    client: Client,
    head: tuple[int, str] = (0, NONE),
    take: Callable[[AuditEntry], None] = lambda entry: None,
) -> TrailVerdict:
    """Read the whole log, and check it.

    Args:
        client: a connection in account HUB.
        head: the last message that is known to have been stored: less than that is a breach, too.
        take: told of each entry.

    Raises:
        HubError: the server does not answer.
    """
    if await JetStreamApi(client).stream_info(AUDIT) is None:
        return TrailVerdict(0, 0, [(1, "missing")] if head[0] else [])
    chain, reader, entries, messages = AuditChain(), StoredReader(client, AUDIT), 0, 0
    seq, at_head = 1, NONE if not head[0] else ""
    while found := await reader.read(seq, _READ_MESSAGES):
        for message in found:
            for entry in chain.take(message.seq, message.body):
                entries += 1
                take(entry)
            if message.seq == head[0]:
                at_head = digest(message.body)
        messages += len(found)
        seq = found[-1].seq + 1
    breaches = chain.breaches
    if chain.seq < head[0]:
        breaches.append((chain.seq + 1, "missing"))
    elif at_head != head[1]:
        breaches.append((head[0], "changed"))
    return TrailVerdict(messages, entries, breaches)
