"""What the JetStream API is asked again, and what an answer to a repeat means."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from backhaul_hub.errors import JetStreamError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_runtime.jetstream import (
    ACCOUNT_NOT_ENABLED,
    CLUSTER_NOT_AVAILABLE,
    CONSUMER_NOT_FOUND,
    NO_SUITABLE_PEERS,
    STREAM_NOT_FOUND,
    STREAM_NOT_MADE,
    TOO_FEW_PEERS,
)


class Cluster:
    """Stands for a server that does what it is asked, and whose first answers are lost, or are others."""

    def __init__(self, lost: int, code: int, *, first: tuple[int, ...] = ()) -> None:
        self.asked: list[str] = []
        self._lost = lost
        self._first = list(first)
        self._answer = json.dumps({"error": {"err_code": code, "description": "gone"}}).encode()

    async def request(self, subject: str, *_: object, **__: object) -> Any:
        self.asked.append(subject)
        if len(self.asked) <= self._lost:
            raise TimeoutError
        if self._first:
            error = {"err_code": self._first.pop(0), "description": "not yet"}
            return SimpleNamespace(data=json.dumps({"error": error}).encode())
        return SimpleNamespace(data=self._answer)


class Leaderless(Cluster):
    """Drops the first requests without a word, as servers do that have no leader."""

    async def request(self, subject: str, *words: object, **named: object) -> Any:
        if len(self.asked) < self._lost:
            self.asked.append(subject)
            await asyncio.get_running_loop().create_future()
        return await super().request(subject, *words, **named)


def api_of(cluster: Cluster) -> JetStreamApi:
    return JetStreamApi(cluster, patience_s=60.0)  # type: ignore[arg-type]


async def test_a_consumer_that_was_deleted_before_the_answer_got_lost_is_deleted() -> None:
    cluster = Cluster(1, CONSUMER_NOT_FOUND)
    await api_of(cluster).delete_consumer("TWIN_CMD", "control")
    assert cluster.asked == ["$JS.API.CONSUMER.DELETE.TWIN_CMD.control"] * 2


async def test_servers_that_have_no_leader_yet_are_asked_again_before_an_answer_is_overdue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each start with a server away waited the whole time limit, several times over."""
    monkeypatch.setattr("backhaul_hub.nats.jetstream._FIRST_S", 0.01)
    monkeypatch.setattr("backhaul_hub.nats.jetstream._AGAIN_S", 0)
    cluster = Leaderless(2, STREAM_NOT_FOUND)
    api = JetStreamApi(cluster, timeout_s=3600.0, patience_s=3600.0)  # type: ignore[arg-type]
    async with asyncio.timeout(120):
        assert await api.stream_info("UP_00") is None
    assert len(cluster.asked) == 3


class Parted(Cluster):
    """Answers by itself for a stream whose leader it has lost, until that is there again."""

    async def request(self, subject: str, *_: object, **__: object) -> Any:
        self.asked.append(subject)
        parted = len(self.asked) <= self._lost
        cluster = {"name": "hub"} | ({} if parted else {"leader": "b"})
        messages = {"messages": 5 if parted else 900}
        return SimpleNamespace(data=json.dumps({"cluster": cluster, "state": messages}).encode())


async def test_a_server_that_names_no_leader_is_not_believed() -> None:
    """Parted from the others it answered for two minutes with what it held then."""
    cluster = Parted(1, 0)
    info = await api_of(cluster).stream_info("UP_00")
    assert info is not None
    assert info["state"]["messages"] == 900
    impatient = JetStreamApi(Parted(1, 0))  # type: ignore[arg-type]
    with pytest.raises(JetStreamError, match="knows no leader"):
        await impatient.stream_info("UP_00")


async def test_any_other_refusal_to_delete_is_told() -> None:
    with pytest.raises(JetStreamError):
        await api_of(Cluster(0, STREAM_NOT_FOUND)).delete_consumer("TWIN_CMD", "control")


async def test_servers_of_a_cluster_that_do_not_all_know_one_another_yet_are_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backhaul_hub.nats.jetstream._AGAIN_S", 0)
    not_yet = (CLUSTER_NOT_AVAILABLE, NO_SUITABLE_PEERS, TOO_FEW_PEERS)
    cluster = Cluster(0, STREAM_NOT_FOUND, first=not_yet)
    with pytest.raises(JetStreamError) as told:
        await api_of(cluster).request("STREAM.CREATE.UP_00")
    assert told.value.err_code == STREAM_NOT_FOUND
    assert len(cluster.asked) == 4


async def test_a_server_that_loads_the_account_is_asked_again_however_short_the_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another connection has the server load it, and the account is in use before its store is there."""
    monkeypatch.setattr("backhaul_hub.nats.jetstream._AGAIN_S", 0)
    loading = (ACCOUNT_NOT_ENABLED, STREAM_NOT_MADE, STREAM_NOT_MADE)
    cluster = Cluster(0, STREAM_NOT_FOUND, first=loading)
    with pytest.raises(JetStreamError) as told:
        await JetStreamApi(cluster).request("STREAM.NAMES")  # type: ignore[arg-type]
    assert told.value.err_code == STREAM_NOT_FOUND
    assert len(cluster.asked) == 4


@pytest.mark.parametrize("code", [ACCOUNT_NOT_ENABLED, STREAM_NOT_FOUND])
async def test_a_refusal_that_lasts_is_told(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr("backhaul_hub.nats.jetstream._LOADING_S", 0)
    with pytest.raises(JetStreamError) as told:
        await JetStreamApi(Cluster(0, code)).request("STREAM.NAMES")  # type: ignore[arg-type]
    assert told.value.err_code == code
