"""The shadow's core: what is desired becomes writes, and documents say how things stand."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec.state.merge import HeadKey
from backhaul_hub.shadow.core import Desired
from backhaul_hub.sync.core import peer_of
from backhaul_hub.sync.writes import Put
from tests.hub.shadow_ends import RATE, SECOND_NS, Both
from tests.support.hub_sync import DEVICE, START_NS


def test_a_desired_field_goes_down_and_is_reported_once_the_vehicle_has_it() -> None:
    both = Both()
    both.vehicle.put("gps", "rate", 4.0)
    both.sync()
    assert (both.reported, both.config) == ({"gps.rate": 4.0}, {"gps.rate": 4.0})
    both.desire({"gps.rate": 5, "gps.mode": "eco"}, who="anna")
    both.publish()
    assert (both.reported, both.config) == (
        {"gps.rate": 4.0},
        {"gps.rate": 5.0, "gps.mode": "eco"},
    )
    rate = both.delta["gps.rate"]
    assert (rate["desired"], rate["reported"], rate["why"]) == (5.0, 4.0, "on its way")
    assert both.meta["fields"]["gps.rate"]["origin"] == "hub:anna"
    assert not both.meta["fields"]["gps.rate"]["confirmed"]
    both.sync()
    assert both.reported == {"gps.rate": 5.0, "gps.mode": "eco"}
    assert both.delta == {}
    assert both.meta["fields"]["gps.rate"]["confirmed"]
    assert both.meta["in_sync"] is True


def test_what_is_no_longer_desired_stays_as_it_is_and_null_deletes_it() -> None:
    both = Both()
    both.desire({"gps.rate": 5, "gps.mode": "eco"})
    both.sync()
    both.desire({"gps.mode": "eco"})
    both.sync()
    assert both.reported == {"gps.rate": 5.0, "gps.mode": "eco"}
    both.desire({"gps.mode": None, "gps.never": None})
    both.publish()
    assert both.delta.keys() == {"gps.mode"}
    both.sync()
    assert both.reported == {"gps.rate": 5.0}
    assert both.delta == {}
    both.desire(None)
    both.sync()
    assert both.meta["desired"]["revision"] == 4
    assert both.reported == {"gps.rate": 5.0}


@pytest.mark.parametrize("vehicle_later", [True, False])
def test_what_both_ends_wrote_while_apart_is_decided_by_time(vehicle_later: bool) -> None:
    both = Both()
    both.vehicle.put("gps", "rate", 1.0)
    both.desire({"gps.mode": "eco"})
    both.sync()

    def edit_the_vehicle() -> None:
        both.clock.ns += SECOND_NS
        both.vehicle.put("gps", "rate", 7.0)

    if vehicle_later:
        both.desire({"gps.mode": "eco", "gps.rate": 5})
        edit_the_vehicle()
    else:
        edit_the_vehicle()
        both.desire({"gps.mode": "eco", "gps.rate": 5})
    both.sync()
    winner = 7.0 if vehicle_later else 5.0
    assert both.vehicle_has() == winner
    assert (both.reported["gps.rate"], both.config["gps.rate"]) == (winner, winner)
    [conflict] = both.meta["conflicts"]
    assert conflict["field"] == "gps.rate"
    if vehicle_later:
        rate = both.delta["gps.rate"]
        assert (rate["why"], rate["by"], rate["desired"]) == ("overridden", "vehicle", 5.0)
        # The wish does not fight: neither again, nor with another field, nor after a crash.
        both.desire({"gps.mode": "fast", "gps.rate": 5})
        both.crash()
        both.deliver(both.desire({"gps.mode": "fast", "gps.rate": 5}, delivered=False))
        both.sync()
        assert both.vehicle_has() == 7.0
        # A wish that is new does win.
        both.desire({"gps.mode": "fast", "gps.rate": 6})
        both.sync()
        assert both.vehicle_has() == 6.0
    assert both.delta == {}


def test_a_write_at_the_hub_by_another_way_is_named() -> None:
    both = Both()
    both.desire({"gps.rate": 5})
    both.clock.ns += SECOND_NS
    both.hub.set(Put(RATE, 9.0), who="ben")
    both.publish()
    assert (both.delta["gps.rate"]["why"], both.delta["gps.rate"]["by"]) == (
        "overridden",
        "hub:ben",
    )


def test_several_revisions_come_to_the_last() -> None:
    both = Both()
    both.desire({"gps.rate": 1}, delivered=False)
    both.desire({"gps.rate": 2}, delivered=False)
    last = both.desire({"gps.rate": 3}, delivered=False)
    assert both.deliver(last) == 1
    assert both.deliver(last) == 0
    both.sync()
    assert (both.vehicle_has(), both.meta["desired"]["revision"]) == (3.0, 3)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"not json", "no JSON"),
        (b'{"gps.rate": 9, "gps.flag": true}', "gps.flag"),
        (b'{"gps.rate": 9, "gps": 1}', "gps"),
    ],
)
def test_a_document_is_taken_whole_or_not_at_all(document: bytes, why: str) -> None:
    both = Both()
    both.desire({"gps.rate": 5})
    both.sync()
    before = dict(both.bucket)
    for _ in range(2):  # as read again after a crash
        both.deliver(Desired(DEVICE, 2, both.clock.ns, document))
        both.publish()
        assert why in both.meta["refused"]["reason"]
        assert both.meta["refused"]["revision"] == 2
        assert both.meta["desired"] == before["meta"]["desired"]
        assert (both.bucket["reported"], both.config) == (before["reported"], {"gps.rate": 5.0})
        assert both.hub.core.outbox.first() is None
        both.crash()
    both.desire({"gps.rate": 6})
    both.publish()
    assert (both.meta["refused"], both.config) == (None, {"gps.rate": 6.0})


@pytest.mark.parametrize("document", [{"gps.mode": None}, {"gps.mode": "eco"}])
def test_a_document_of_somebody_whose_name_is_too_long_is_refused(document: object) -> None:
    both = Both()
    both.desire(document, who="x" * 300)
    both.publish()
    assert "255" in both.meta["refused"]["reason"]


def test_a_node_that_would_not_fit_into_one_message_is_refused() -> None:
    both = Both()
    for number in range(4):
        big = random.Random(number).randbytes(500_000)
        both.hub.set(Put(HeadKey("", "gps", f"blob{number}", ""), big))
    both.desire({"hmi.theme": "dark", "gps.a": 1, "gps.b": 2})
    both.publish()
    assert "write them one by one" in both.meta["refused"]["reason"]
    assert both.hub.core.heads.get(DEVICE, HeadKey("", "hmi", "theme", "")) is None


def test_a_device_that_there_is_not_is_refused_until_there_is() -> None:
    both = Both()
    desired = Desired("VID-009", 1, START_NS, b'{"gps.rate": 5}')
    both.deliver(desired)
    [meta] = both.shadows.documents("VID-009")
    assert meta.part == "meta"
    assert "there is no device" in json.loads(meta.body)["refused"]["reason"]
    both.hub.devices["VID-009"] = None
    assert both.deliver(desired) == 1


def test_nothing_is_written_where_nothing_has_changed() -> None:
    both = Both()
    assert both.publish() == []
    both.vehicle.put("gps", "rate", 4.0)
    both.sync()
    assert both.publish() == []
    versions = {part: said["version"] for part, said in both.bucket.items()}
    both.crash()
    assert both.publish() == []
    both.vehicle.put("gps", "power", 4.0, parent="VID-001")
    both.sync()
    assert "gps.power" not in both.reported, "an edge is no field"
    both.vehicle.put("gps", "rate", 5.0)
    both.sync()
    assert both.bucket["reported"]["version"] == versions["reported"] + 1


def test_what_the_vehicle_had_is_still_known_after_a_crash() -> None:
    both = Both()
    both.vehicle.put("gps", "rate", 4.0)
    both.sync()
    both.desire({"gps.rate": 5})
    both.publish()
    both.crash()
    both.desire({"gps.rate": 6})
    both.publish()
    assert (both.reported, both.config) == ({"gps.rate": 4.0}, {"gps.rate": 6.0})


def test_a_stored_word_of_before_is_read() -> None:
    assert peer_of('{"seen":[],"clock":[],"in_sync":true,"compared_ns":5}').agreed_ns == 0


def test_a_damaged_row_is_said_and_left_out() -> None:
    both = Both()
    both.desire({"gps.rate": 5})
    assert both.shadows.restore([("VID-001", "{}"), ("VID-002", "no")]) == ["VID-001", "VID-002"]


def test_clock_quality_is_in_meta() -> None:
    both = Both()
    both.vehicle.event("clock", {"quality": "holdover"})
    both.vehicle.put("gps", "rate", 4.0)
    both.sync()
    assert both.meta["clock"] == "holdover"
    assert DEVICE in both.hub.core.news


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["desire", "vehicle", "sync", "crash", "lose", "redeliver"]),
        st.sampled_from(["rate", "mode"]),
        st.sampled_from([1.0, 2.0, None]),
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_happens_both_ends_agree_and_delta_is_what_differs(
    steps: list[tuple[str, str, float | None]],
) -> None:
    both = Both()
    document: dict[str, float | None] = {}
    last: Desired | None = None
    for what, type_, value in steps:
        both.clock.ns += SECOND_NS
        if what == "desire":
            document = {**document, f"gps.{type_}": value}
            last = both.desire(document)
        elif what == "lose":  # a revision that is only seen later, by the next start
            document = {**document, f"gps.{type_}": value}
            last = both.desire(document, delivered=False)
        elif what == "redeliver" and last:
            both.deliver(last)
        elif what == "vehicle" and value is not None:
            both.vehicle.put("gps", type_, value)
        elif what == "sync":
            both.sync()
        elif what == "crash":
            both.publish()
            both.crash()
    if last:
        both.deliver(last)
        assert both.deliver(last) == 0
    both.sync()
    both.sync()
    have = {f"gps.{key.type}": head.value for key, head in both.vehicle.heads if not head.deleted}
    if "reported" in both.bucket:
        assert both.reported == both.config == have
    wanted = {name: value for name, value in document.items() if value is not None}
    gone = [name for name, value in document.items() if value is None]
    differs = {name for name in wanted if have.get(name) != wanted[name]}
    differs |= {name for name in gone if name in have}
    if last:
        assert both.delta.keys() == differs
        assert all(each["why"] == "overridden" for each in both.delta.values())


def test_the_bucket_gets_back_what_is_desired() -> None:
    both = Both()
    both.desire({"gps.rate:int64": 5, "gps.mode": "eco", "gps.old": None})
    body = both.shadows.desired_body(DEVICE)
    assert body is not None
    assert json.loads(body) == {"gps.rate:int64": 5, "gps.mode": "eco", "gps.old": None}
    both.publish()
    assert both.deliver(Desired(DEVICE, 1, both.clock.ns, body)) == 0
    assert both.bucket["config"]["dtypes"] == {"gps.rate": "int64"}
    again = both.shadows.documents(DEVICE, all_of_them=True)
    assert {document.part for document in again} == {"config", "meta"}
    assert both.shadows.desired_body("VID-777") is None


def test_what_the_vehicle_had_last_counts_however_many_writes_come_at_once() -> None:
    both = Both()
    both.vehicle.put("gps", "rate", 4.0)
    both.sync()
    both.hub.set(Put(RATE, 5.0))
    both.clock.ns += SECOND_NS
    both.vehicle.put("gps", "rate", 6.0)
    both.link.up()
    both.hub.set(Put(RATE, 7.0))
    both.publish()
    assert (both.reported, both.config) == ({"gps.rate": 6.0}, {"gps.rate": 7.0})


def test_a_conflict_that_the_vehicle_lost_is_news() -> None:
    both = Both()
    both.vehicle.put("gps", "rate", 4.0)
    both.clock.ns += SECOND_NS
    both.hub.set(Put(RATE, 5.0))
    both.hub.take([])  # what is stored of the write is no news after it
    both.hub.core.news.clear()
    both.link.up()
    assert both.hub.core.news == {DEVICE}
    both.publish()
    assert [each["field"] for each in both.meta["conflicts"]] == ["gps.rate"]


def test_a_refusal_is_stored_once() -> None:
    both = Both()
    desired = both.desire(b"no", delivered=False)
    assert both.shadows.refuse(desired, "why") is not None
    assert both.shadows.refuse(desired, "why") is None
