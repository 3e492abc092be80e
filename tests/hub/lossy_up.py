"""A stream of UP that loses messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_hub.nats.jetstream import JetStreamApi
from tests.support.rig import patient

from .up_stream import Up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nats_server import NatsServer


@pytest.fixture
async def up(nats_server: NatsServer, tmp_path: Path) -> Up:
    """A stream UP_00 with the seqs 1 to 20 of one lane, at the stream's sequences 1 to 20."""
    up = Up(nats_server, tmp_path)
    client = await patient.connect(nats_server.url)
    up.api = JetStreamApi(client)
    await up.create()
    await up.frames(*range(1, 21))
    await client.close()
    return up
