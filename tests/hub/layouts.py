"""A hub's layout, and a clock that stands still."""

from __future__ import annotations

from backhaul_hub.setup.hub_directory import HubLayout


class FixedClock:
    def now_ns(self) -> int:
        return 1_700_000_000 * 10**9

    def monotonic_s(self) -> float:
        return 0.0


def layout(leaf_url: str = "nats-leaf://hub.example.org:7422") -> HubLayout:
    return HubLayout("127.0.0.1", "127.0.0.1", 4222, 7422, leaf_url, 1, 5.0)
