"""The requests that stand in DOWN, read on a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.uplink import standing_requests
from backhaul_hub.uplink.standing_requests import StandingRequest
from tests.support.rig import patient

if TYPE_CHECKING:
    from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.nats]


async def test_the_newest_request_of_each_lane_stands_and_an_ended_one_does_not(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_requests, "_BATCH", 2)
    client = await patient.connect(nats_server.url)
    try:
        api = JetStreamApi(client)
        down = {"name": "DOWN_00", "subjects": ["in.>"], "max_msgs_per_subject": 1}
        await api.request("STREAM.CREATE.DOWN_00", down | {"allow_direct": True})
        says = [
            ("VID-001.s.resend.bulk", {"epoch": 7, "ranges": [[1, 4]], "id": "a"}),
            ("VID-001.s.watermark.bulk", {"epoch": 7, "seq": 3}),
            ("VID-001.s.resend.bulk", {"epoch": 8, "ranges": [[2, 2], [5, 9]], "machine": "a1"}),
            ("VID-001.s.resend.live", {"epoch": 8, "ranges": [[2, 2]], "machine": ""}),
            ("VID-002.s.resend.bulk", {"epoch": 9, "ranges": [[1, 1]]}),
            ("VID-002.s.resend.bulk", {"epoch": 9, "ranges": []}),
            ("VID-002.s.resend.n_gps", {"epoch": 9, "ranges": "damaged"}),
            ("VID-003.s.resend.bulk", {"epoch": 4, "ranges": [[3, 3]]}),
        ]
        for subject, words in says:
            await api.publish(f"in.{subject}", json.dumps(words).encode())
        assert await standing_requests.standing_requests(StoredReader(client, "DOWN_00")) == {
            ("VID-001", "bulk"): StandingRequest(8, ((2, 2), (5, 9)), "a1"),
            ("VID-001", "live"): StandingRequest(8, ((2, 2),), ""),
            ("VID-003", "bulk"): StandingRequest(4, ((3, 3),), None),
        }
    finally:
        await client.close()
