"""Alerts as messages, and the tables that keep them; no server, no JVM."""

from __future__ import annotations

import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from backhaul_spark.cli._twin_text import utc
from backhaul_spark.cli.main import cli
from backhaul_spark.errors import (
    AlertUnfitError,
    HubProtocolError,
    LoginRefusedError,
    NobodyTakesError,
    NothingFoundError,
    PublishRefusedError,
    StreamFullError,
    TableMissingError,
    TablesBusyError,
    UnreachableError,
)
from backhaul_spark.rules.alert import alert_table
from backhaul_spark.sink import alert_tables
from backhaul_spark.sink.alert_tables import AlertTables, newest_of_each
from backhaul_spark.sink.outgoing import alert_message, command_message, digest_of
from backhaul_spark.sink.outlet import Outlet
from backhaul_spark.sink.publisher import WINDOW_MESSAGES, judged
from backhaul_spark.tables.delta import open_table
from backhaul_spark.tables.schemas import ALERTS_TABLE, SNAPSHOTS, TWINS_TABLE
from tests.spark.sink_desk import NOW_NS, STORED, Desk, FakeClock, hot, refused, row

if TYPE_CHECKING:
    from pathlib import Path


def test_an_alert_is_a_message_of_its_device_known_by_its_id() -> None:
    found = alert_message("prod", row(value=61.0, limit=math.inf))
    digest = digest_of(f"VID-001:hot:raised:{NOW_NS}")
    assert found.subject == f"fleet.prod.veh.VID-001.evt.alert.hot.raised.{digest}"
    assert b"Nats-Expected-Last-Subject-Sequence: 0\r\n" in found.header
    said = json.loads(found.body)
    assert (said["vid"], said["time"], said["value"], said["limit"]) == (
        *("VID-001", NOW_NS, 61.0),
        None,
    )
    assert said["command"] == {"name": "cool_down", "params": {"target_c": 55}}
    assert "command" not in json.loads(alert_message("prod", row(command="", params={})).body)


def test_a_command_has_the_alerts_name_and_what_is_left_of_its_time() -> None:
    found = command_message("prod", row(), NOW_NS + 100 * 10**9)
    assert found is not None
    assert found.subject == "fleet.prod.veh.VID-001.cmd.cool_down"
    assert json.loads(found.body) == {
        "id": digest_of(row()["id"]),
        "params": {"target_c": 55},
        "deadline_s": 200.0,
        "who": "twin:hot",
    }
    assert command_message("prod", row(), NOW_NS + 300 * 10**9) is None, "too late"
    assert command_message("prod", row(command=""), NOW_NS) is None
    assert row(late=True)["command"] == ""


@pytest.mark.parametrize("name", ["a b", "a..b", "a.*", ">", "x\r\nPUB y 0", "a."])
def test_what_would_be_no_subject_is_no_command(name: str) -> None:
    with pytest.raises(AlertUnfitError, match="no name of a command"):
        command_message("prod", row(command=name), NOW_NS)


@given(st.text(), st.text(), st.text(), st.text())
def test_whatever_an_alert_says_its_subject_stays_below_its_device(
    rule: str, kind: str, key: str, text: str
) -> None:
    said = row(rule=rule, key=key, text=text) | {"kind": kind}
    found = alert_message("prod", said)
    tokens = found.subject.split(".")
    assert tokens[:6] == ["fleet", "prod", "veh", "VID-001", "evt", "alert"]
    assert len(tokens) == 9
    assert all(tokens)
    assert found.subject.isascii()
    assert not set(" *>\r\n\t") & set(found.subject)
    with pytest.raises(AlertUnfitError):
        alert_message("prod", said | {"device": "VID.*"})


@pytest.mark.parametrize(
    ("header", "body", "found"),
    [
        (b"", STORED, "stored"),
        (b"", b'{"stream":"TWIN_CMD","seq":9,"duplicate":true}', "repeat"),
        (b"", refused(10071), "repeat"),
        (b"", refused(10077), StreamFullError),
        (b"NATS/1.0 503\r\n\r\n", b"", NobodyTakesError),
        (b"", refused(10008), NobodyTakesError),
        (b"", refused(10054), PublishRefusedError),
        (b"", b"", PublishRefusedError),
        (b"", b"[]", PublishRefusedError),
    ],
    ids=["stored", "duplicate", "there", "full", "nobody", "leaderless", "large", "empty", "list"],
)
def test_an_acknowledgement_is_judged(header: bytes, body: bytes, found: object) -> None:
    if isinstance(found, str):
        assert judged(header, body) == found
        return
    assert isinstance(found, type)
    with pytest.raises(found):
        judged(header, body)


def test_many_are_under_way_and_never_more_than_the_window() -> None:
    desk = Desk()
    subjects = [f"s{number}" for number in range(3 * WINDOW_MESSAGES)]
    assert desk.publish(*subjects) == (len(subjects), 0, 0)
    assert desk.hub.stored == subjects
    assert desk.hub.under_way_max == WINDOW_MESSAGES


def test_a_link_that_breaks_loses_nothing_and_is_told_of_once() -> None:
    broken = UnreachableError("hub:4222", "reset")
    desk = Desk(STORED, broken, broken, STORED, broken)
    assert desk.publish("a", "b", "c") == (3, 0, 0)
    assert desk.hub.stored == ["a", "b", "c"]
    assert desk.hub.opened == 4
    assert len(desk.told) == 2
    assert "2 wait, nothing is lost" in desk.told[0]
    assert desk.told[1] == "the hub takes them again"


def test_a_full_stream_is_waited_for_longer_and_longer_and_the_order_stays() -> None:
    desk = Desk(STORED, refused(10077), refused(10077), *[refused(10077)] * 60, STORED)
    assert desk.publish("a", "b", "c") == (3, 0, 0)
    assert desk.hub.stored == ["a", "b", "c"]
    assert 100 < desk.clock.now_s < 200, "30 looks, at most 5 s apart"
    assert "no room" in desk.told[0]


def test_what_is_waited_for_too_long_is_dropped_at_the_last_moment() -> None:
    desk = Desk(*[b""] * 100)
    found = desk.publisher.publish(
        [row()], lambda each: command_message("prod", each, desk.clock.now_ns())
    )
    assert found == (0, 0, 1)
    assert desk.hub.stored == []
    assert desk.clock.now_s >= 300


def test_who_has_to_stop_is_told_what_is_in_the_way() -> None:
    with pytest.raises(NobodyTakesError, match="no stream takes them"):
        Desk(b"", give_up=True).publish("a")


@pytest.mark.parametrize(
    "error",
    [LoginRefusedError("hub", "no"), PublishRefusedError("too large")],
    ids=["login", "refused"],
)
def test_what_no_waiting_mends_is_raised(error: Exception) -> None:
    desk = Desk(error)
    with pytest.raises(type(error)):
        desk.publish("a")
    assert desk.clock.now_s == 0


def test_a_violation_of_rights_is_waited_out_and_said() -> None:
    desk = Desk(HubProtocolError("hub", "Permissions Violation for Publish"))
    assert desk.publish("a") == (1, 0, 0)
    assert "Permissions Violation" in desk.told[0]


# Tables


def ids_of(root: Path) -> list[str]:
    return list(open_table(str(root), ALERTS_TABLE).to_pyarrow_table()["id"].to_pylist())


def test_an_alert_is_in_the_table_once_whatever_batch_brings_it(tmp_path: Path) -> None:
    clock = FakeClock()
    tables = AlertTables(str(tmp_path), clock)
    assert tables.add_alerts(0, alert_table([])) == 0
    assert tables.add_alerts(7, alert_table([hot(1), hot(2), hot(2)])) == 2
    assert tables.add_alerts(7, alert_table([hot(1), hot(2), hot(3)])) == 1, "timers ran on"
    anew = AlertTables(str(tmp_path), clock)
    late = hot(-5 * 86_400 * 10**9, late=True)
    assert anew.add_alerts(0, alert_table([hot(3), late])) == 1, "a new checkpoint begins at 0"
    assert len(ids_of(tmp_path)) == len(set(ids_of(tmp_path))) == 4
    found = open_table(str(tmp_path), ALERTS_TABLE).to_pyarrow_table()
    dates = dict(zip(found["id"].to_pylist(), found["date"].to_pylist(), strict=True))
    assert str(dates[late.id]) == "2026-04-26"
    assert str(dates[hot(1).id]) == "2026-05-01"


def snapshots(*said: tuple[str, int, float]) -> pa.Table:
    blank: dict[str, Any] = dict.fromkeys(SNAPSHOTS.names) | {
        "last_seen_ns": 0,
        "open_alerts": "[]",
        "statistics": "{}",
    }
    rows = [
        blank | {"device": device, "at_ns": at, "health": health} for device, at, health in said
    ]
    return pa.Table.from_pylist(rows, schema=SNAPSHOTS)


def test_of_each_device_the_newest_word_stands(tmp_path: Path) -> None:
    tables = AlertTables(str(tmp_path), FakeClock())
    assert tables.put_twins(0, snapshots()) == 0
    assert tables.put_twins(1, snapshots(("A", 5, 0.5), ("B", 4, 1.0), ("A", 3, 0.0))) == 2
    assert tables.put_twins(2, snapshots(("A", 4, 0.1), ("B", 6, 0.9), ("C", 1, 0.7))) == 3
    found = open_table(str(tmp_path), TWINS_TABLE).to_pyarrow_table().to_pylist()
    assert {each["device"]: each["health"] for each in found} == {"A": 0.5, "B": 0.9, "C": 0.7}


def test_a_batch_that_is_written_while_the_job_ends_is_in_both_tables(tmp_path: Path) -> None:
    written, ending = threading.Event(), threading.Event()

    def after(step: str) -> None:
        if step == "table alerts":
            written.set()
            ending.wait(0.2)

    outlet = Outlet(
        *(Desk().publisher, AlertTables(str(tmp_path), FakeClock()), "prod", FakeClock()),
        after=after,
    )
    with ThreadPoolExecutor(1) as spark:
        batch = spark.submit(outlet.write, 1, alert_table([hot()]), snapshots(("A", 5, 0.5)))
        assert written.wait(60)
        outlet.close()
        ending.set()
        batch.result(60)
    found = open_table(str(tmp_path), TWINS_TABLE).to_pyarrow_table().to_pylist()
    assert [each["device"] for each in found] == ["A"]


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 4)), max_size=20))
def test_the_newest_of_each_is_the_last_of_the_newest(said: list[tuple[str, int]]) -> None:
    newest: dict[str, tuple[int, float]] = {}
    rows = [(device, at, float(number)) for number, (device, at) in enumerate(said)]
    for device, at, health in rows:
        if at >= newest.get(device, (-1, 0.0))[0]:
            newest[device] = (at, health)
    found = newest_of_each(snapshots(*rows)).to_pylist()
    assert {each["device"]: (each["at_ns"], each["health"]) for each in found} == newest


def test_small_files_of_alerts_become_large_ones_and_each_alert_stays_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(alert_tables._TIDY_EVERY, "alerts", 3)
    tables = AlertTables(str(tmp_path), FakeClock())
    for number in range(1, 5):
        tables.add_alerts(number, alert_table([hot(number)]))
    assert sorted(ids_of(tmp_path)) == sorted(hot(number).id for number in range(1, 5))
    assert len(open_table(str(tmp_path), ALERTS_TABLE).file_uris()) == 2


def test_a_driver_that_was_thought_dead_commits_nothing(tmp_path: Path) -> None:
    old, new = (AlertTables(str(tmp_path), FakeClock()) for _ in range(2))
    old.add_alerts(1, alert_table([hot(1)]))
    known = old._known
    old._known = lambda alerts: (  # type: ignore[method-assign]
        known(alerts),
        new.add_alerts(2, alert_table([hot(2)])),
    )[0]
    with pytest.raises(TablesBusyError):
        old.add_alerts(2, alert_table([hot(2)]))
    assert len(ids_of(tmp_path)) == 2


def told(*arguments: str) -> str:
    found = CliRunner().invoke(cli, arguments)
    if found.exception is not None:
        raise found.exception
    return found.output


def test_the_commands_show_what_the_tables_hold(tmp_path: Path) -> None:
    root = ("--table-root", str(tmp_path))
    tables = AlertTables(str(tmp_path), FakeClock())
    assert told("alerts", *root) == "no alerts\n"
    odd = hot(60 * 10**9, device="VID-002", value=math.nan, late=True, rule="cold")
    tables.add_alerts(1, alert_table([odd, hot()]))
    tables.put_twins(1, snapshots(("VID-001", 5, 0.5), ("VID-002", 6, 1.0)))
    first, second = told("alerts", *root).splitlines()
    assert first == (
        "2026-05-01T12:00:00.000Z  VID-001  critical hot raised: battery is at 61 °C"
        '  -> cool_down {"target_c": 55}'
    )
    assert second.startswith("2026-05-01T12:01:00.000Z  VID-002  critical late cold raised: ")
    assert "1 earlier ones are not shown" in told("alerts", *root, "--limit", "1")
    [found] = json.loads(told("alerts", *root, "--since", "2026-05-01T12:01", "--json"))
    assert (found["value"], found["params"], found["date"]) == ("NaN", {}, "2026-05-01")
    for which in (("--device", "VID-001"), ("--rule", "hot")):
        assert len(json.loads(told("alerts", *root, *which, "--json"))) == 1
    assert told("twins", *root, "VID-001") == (
        "VID-001  health 0.50  last seen 1970-01-01T00:00:00.000Z\n"
    )
    assert [each["at_ns"] for each in json.loads(told("twins", *root, "--json"))] == [5, 6]
    with pytest.raises(NothingFoundError, match="no snapshot of VID-9"):
        told("twins", *root, "VID-9")
    with pytest.raises(TableMissingError):
        told("alerts", "--table-root", str(tmp_path / "none"))


def test_a_time_that_no_calendar_has_is_shown_all_the_same() -> None:
    assert utc(1 << 62) == "2116-02-20T23:53:38.427Z"
    assert utc(-(1 << 90)).endswith(" ns")
