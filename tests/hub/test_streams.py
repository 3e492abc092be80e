"""What may be changed on a living stream and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_hub.errors import JetStreamError
from backhaul_hub.shards import api_subject, inbox_subject, shard_of
from backhaul_hub.streams.streams import differences, reconcile
from backhaul_runtime.jetstream import INSUFFICIENT_STORAGE

if TYPE_CHECKING:
    from backhaul_hub.nats.jetstream import JetStreamApi


def test_no_difference_where_the_server_says_more_than_was_declared() -> None:
    assert differences({"max_age": 5}, {"max_age": 5, "duplicate_window": 9}) == ([], [])


def test_limits_may_change_in_place_and_storage_may_not() -> None:
    updatable, fixed = differences(
        {"max_age": 5, "storage": "file"}, {"max_age": 6, "storage": "memory"}
    )
    assert updatable == ["max_age is 6, wanted 5"]
    assert fixed == ["storage is 'memory', wanted 'file'"]


def test_a_device_stays_in_its_shard() -> None:
    """The numbers are in the field: another hash would strand every device's history."""
    assert [shard_of(f"VID-{number:03}", 8) for number in range(1, 6)] == [4, 6, 0, 3, 5]


def test_a_request_goes_to_the_account_of_the_stream_that_it_names() -> None:
    assert api_subject("STREAM.INFO.UP_00") == "upapi.STREAM.INFO.UP_00"
    assert api_subject("CONSUMER.INFO.UP_07.migrate") == "upapi.CONSUMER.INFO.UP_07.migrate"
    for verb in ("STREAM.NAMES", "STREAM.INFO.DOWN_00", "STREAM.INFO.UP_0", "STREAM.INFO.UPSTREAM"):
        assert api_subject(verb) == f"$JS.API.{verb}"
    assert inbox_subject("UP_00", "_INBOX.a") == "updeliver._INBOX.a"
    assert inbox_subject("QUARANTINE", "_INBOX.a") == "_INBOX.a"


class Refusing:
    """A server that has no room."""

    async def stream_info(self, stream: str) -> None:
        return None

    async def create_stream(self, _: dict[str, Any]) -> None:
        raise JetStreamError(
            "STREAM.CREATE.S", INSUFFICIENT_STORAGE, "insufficient storage resources"
        )


async def test_a_refusal_says_how_to_mend_it() -> None:
    with pytest.raises(JetStreamError) as refused:
        await reconcile(cast("JetStreamApi", Refusing()), {"name": "S"})
    assert "free some disk" in refused.value.hint
