"""The hub refused a stamp for being in its future: the points are written again. Pure.

``s.restamp.<what followed p. in the refused message's subject>`` with ``{"time", "now_ns"}``: the stamp
that was refused, and the hub's time then.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from backhaul_agent.commit.heads import HeadKeeper
from backhaul_agent.ledger.rows import Inbound, Inward
from backhaul_agent.sync.writes import message_of
from backhaul_codec.state.merge import Head, HeadKey
from backhaul_codec.strict.json import JsonError, Reader
from backhaul_codec.subjects import parse_leaf
from backhaul_codec.wire.addressed import Addressed


class RestampRefused(msgspec.Struct, frozen=True):
    """The hub's refusal; both in ns since the Unix epoch."""

    time: int
    now_ns: int


_read = Reader(RestampRefused).read


class Restamps:
    """Gives refused heads a stamp that the hub takes, and sends them again.

    What was written with the refused stamp was written together, so it is stamped alike and sent
    together, one message for each edge. So is what the hub wrote itself and does not know any more.

    ``on_done``: called when that is durable. The hub merged nothing of the message that it refused, so
    the ends are to be compared.
    """

    def __init__(
        self,
        keeper: HeadKeeper,
        now_ns: Callable[[], int],
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        self.restamped = 0
        self._on_done = on_done
        self._keeper = keeper
        self._now_ns = now_ns

    def on_message(self, message: Inbound, changes: Inward) -> None:
        """Take in a refusal. Nothing is done where the head has another stamp by now.

        Raises:
            ValueError: it is none.
        """
        place = parse_leaf(".".join(["p", *message.tokens[2:]]))
        try:
            refused = _read(message.data)
        except JsonError as error:
            raise ValueError(f"no refusal: {error}") from error
        if refused.now_ns >= refused.time:
            raise ValueError(f"no refusal: {refused.time} is not after {refused.now_ns}")
        refused_before = {HeadKey.of(*addressed) for addressed, _ in changes.replaced}
        heads = {
            key: head
            for key, head in self._keeper.heads.of_node(place.node or "").items()
            if head.time == refused.time and key not in refused_before
        }
        if not any(_is_meant(key, place.parent, place.type, place.key) for key in heads):
            return
        stamp = self._stamp(refused)
        self._keeper.stamps.pull_back(refused.time, stamp)
        self.restamped += len(heads)
        changes.on_durable.append(self._on_done)
        for parent, addressed in _by_edge(heads, stamp):
            changes.messages.append(message_of(parent, addressed))
            changes.replaced += [(each, refused.time) for each in addressed]

    def _stamp(self, refused: RestampRefused) -> int:
        """Return now, unless our clock is still the one that made the refused stamp.

        Later than the hub's word in any case: that is above all that stands at the hub.
        """
        now_ns, least_ns = self._now_ns(), refused.now_ns + 1
        return max(now_ns, least_ns) if now_ns < refused.time else least_ns


def _is_meant(key: HeadKey, parent: str | None, type_: str | None, name: str | None) -> bool:
    if type_ is None:  # a frame: everything in it
        return True
    return key.parent == (parent or "") and (key.type, key.key) == (type_, name)


def _by_edge(heads: dict[HeadKey, Head], stamp: int) -> list[tuple[str, list[Addressed]]]:
    """Return points as they were written: the node's own go with the first of its edges."""
    parents = sorted({key.parent for key in heads} - {""}) or [""]
    groups: dict[str, list[Addressed]] = {parent: [] for parent in parents}
    for key, head in heads.items():
        point = Head(stamp, head.origin, head.value, head.tombstone).to_point(key)
        groups[key.parent or parents[0]].append(Addressed(key.parent, point))
    return list(groups.items())
