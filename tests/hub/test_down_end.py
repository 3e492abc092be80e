"""DOWN goes on beyond all that it ever gave out, whatever became of its store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.lane_records.lane_rows import read_position
from backhaul_hub.links.down_end import JUMP, SHORTER_LOOKS, DownEnd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_hub.nats.jetstream import JetStreamApi


class Down:
    """The API of a server that has DOWN alone."""

    def __init__(self, last_seq: int) -> None:
        self.last_seq = last_seq
        self.purged_to: list[int] = []
        self.away = False

    async def info(self, _: str) -> dict[str, Any]:
        if self.away:
            raise HubError("no answer")
        return {"state": {"last_seq": self.last_seq}}

    async def purge(self, _: str, *, seq: int) -> None:
        self.purged_to.append(seq)
        self.last_seq = seq - 1


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        yield registry


async def opened(down: Down, registry: Registry) -> DownEnd:
    return await DownEnd.open(cast("JetStreamApi", down), registry)


async def looks(end: DownEnd) -> bool:
    """Look as often as it takes to believe that DOWN ends sooner; return what the last look says."""
    for _ in range(SHORTER_LOOKS - 1):
        assert not await end.look()
    return await end.look()


def ack(seq: int, stream: str = "DOWN_00") -> dict[str, Any]:
    return {"stream": stream, "seq": seq}


async def test_a_stream_that_grows_is_left_alone(registry: Registry) -> None:
    down = Down(5)
    end = await opened(down, registry)
    for seq in (6, 7):
        end.stored(ack(seq))
        down.last_seq = seq
        assert not await end.look()
    end.stored(ack(1, "TWIN_STATE"))
    assert not await end.look()
    assert down.purged_to == []


async def test_a_stream_that_ends_sooner_goes_on_beyond_what_hub_db_knows(
    registry: Registry,
) -> None:
    assert not await (await opened(Down(500), registry)).look()
    down = Down(300)
    end = await opened(down, registry)
    assert await looks(end)
    assert down.purged_to == [500 + JUMP + 1]
    assert not await end.look()
    assert not await (await opened(down, registry)).look()


async def test_a_stream_that_went_back_and_has_grown_again_is_known_by_an_acknowledgement(
    registry: Registry,
) -> None:
    down = Down(500)
    end = await opened(down, registry)
    await end.look()
    end.stored(ack(499))
    down.last_seq = 510
    assert await end.look()
    assert down.purged_to == [510 + JUMP + 1]


async def test_what_is_seen_before_its_acknowledgement_comes_is_no_step_back(
    registry: Registry,
) -> None:
    down = Down(500)
    end = await opened(down, registry)
    down.last_seq = 502
    assert not await end.look()
    end.stored(ack(501))
    end.stored(ack(502))
    end.stored(ack(503))
    down.last_seq = 503
    assert not await end.look()
    assert down.purged_to == []
    end.stored(ack(502))  # given out again
    assert await end.look()


async def test_a_server_that_is_away_is_asked_again(registry: Registry) -> None:
    down = Down(500)
    end = await opened(down, registry)
    await end.look()
    down.last_seq, down.away = 300, True
    with pytest.raises(HubError):
        await end.look()
    down.away = False
    assert await looks(end)


async def test_what_is_acknowledged_while_the_end_is_stored_is_stored_by_the_next_look(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a store put back to where hub.db knows it would give that sequence out again, to nobody."""
    down = Down(500)
    end = await opened(down, registry)
    write = registry.write

    async def acknowledged_meanwhile(*row: Any) -> None:
        await write(*row)
        monkeypatch.undo()
        down.last_seq = 501
        end.stored(ack(501))

    monkeypatch.setattr(registry, "write", acknowledged_meanwhile)
    await end.look()
    await end.look()
    assert (await read_position(registry, "DOWN_00")).seq == 501


async def test_what_is_acknowledged_while_the_server_is_asked_need_not_be_in_its_answer(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = Down(500)
    end = await opened(down, registry)

    async def grows_meanwhile(*_: object) -> dict[str, Any]:
        answer = {"state": {"last_seq": down.last_seq}}
        down.last_seq += 1
        end.stored(ack(down.last_seq))
        return answer

    monkeypatch.setattr(down, "info", grows_meanwhile)
    for _ in range(SHORTER_LOOKS + 1):
        assert not await end.look()
    assert down.purged_to == []


async def test_a_server_that_leads_no_more_is_not_believed_that_the_stream_ends_sooner(
    registry: Registry,
) -> None:
    down = Down(500)
    end = await opened(down, registry)
    for answers in ((400, 400, 500), (400, 499, 501)):
        for down.last_seq in answers:
            assert not await end.look()
    assert down.purged_to == []
