"""Appending to an OUT stream over one connection: publish, and hear how it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from backhaul_agent.ledger.rows import LedgerRow


class _Answer(msgspec.Struct):
    """The answer of the leaf server to an append."""

    seq: int = 0
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Answer).decode


class Appends:
    """Publishes the messages of one lane, each with the last sequence that the stream must have.

    ``on_answer`` is told of each, in the order of the answers: generation of the window, the sequence
    that was meant, whether it is stored there, and what else is wrong than that sequence, or nothing. ``push_prefix``:
    of the subjects on which the device pushes.
    """

    def __init__(
        self,
        client: Client,
        on_answer: Callable[[int, int, bool, str], None],
        push_prefix: str = "",
    ) -> None:
        self._push_prefix = push_prefix
        self._client = client
        self._on_answer = on_answer
        self._inbox = client.new_inbox()

    async def start(self) -> None:
        """Hear answers from now on. Raises: NatsError where the connection is gone."""
        self._answers = await self._client.subscribe(f"{self._inbox}.*.*", cb=self._on_message)

    async def stop(self) -> None:
        """Hear none any more."""
        if not self._client.is_closed:
            await self._answers.unsubscribe()

    async def append(
        self, row: LedgerRow, generation: int, expected: int, headers: Mapping[str, str]
    ) -> None:
        """Publish a message that is to be stored after the sequence ``expected``, or not at all."""
        await self._client.publish(
            row.subject,
            row.body,
            reply=f"{self._inbox}.{generation}.{expected + 1}",
            headers={"Nats-Expected-Last-Sequence": str(expected), **headers},
        )

    async def push(self, row: LedgerRow) -> None:
        """Publish a message to the hub, beside the stream; nobody answers."""
        await self._client.publish(self._push_prefix + row.subject, row.body)

    async def _on_message(self, message: Msg) -> None:
        _, generation, stream_seq = message.subject.rsplit(".", 2)
        try:
            answer = _decode(message.data)
            stored = bool(answer.seq) and not answer.error
        except msgspec.DecodeError:
            stored = False  # no responders: the stream is gone
        error = ""
        if not stored and message.data and b"wrong last sequence" not in message.data:
            error = f"append refused: {message.data[:200].decode(errors='replace')}"
        self._on_answer(int(generation), int(stream_seq), stored, error)
