"""A hub's word on epochs where there is no hub: it answers that it knows nothing of any."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.rig import patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from nats.aio.msg import Msg

Lanes = dict[str, tuple[int, int]]


@asynccontextmanager
async def hub_that_knows(
    url: str, known: Mapping[int, Lanes] | None = None, device: str = "VID-001", token: str = "tok1"
) -> AsyncIterator[None]:
    """Answer an agent's questions about epochs: of those not in ``known`` nothing is known."""
    client = await patient.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)

    async def answer(question: Msg) -> None:
        asked = json.loads(question.data)
        now_ns = time.time_ns()
        epochs = {epoch: (known or {}).get(epoch, {}) for epoch in asked.get("epochs", [])}
        said = {"t1": asked["t1"], "t2": now_ns, "t3": now_ns, "epochs": epochs}
        await client.publish(f"clkr.{device}.{token}", json.dumps(said).encode())

    await client.subscribe(f"clk.{device}", cb=answer)
    try:
        yield
    finally:
        await client.close()
