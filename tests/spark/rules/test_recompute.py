"""The rules over the table say what they said in the stream."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_codec import Opaque, Point, encode_frame, encode_point
from backhaul_codec.points import JSON
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.decode.sample_batch import Batch, HeadWord
from backhaul_spark.decode.samples import Wanted, sample_rows
from backhaul_spark.errors import OptionError, TableMissingError
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.nats.direct_get import close_connections
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.nats.stored import Stored
from backhaul_spark.rules.alert import alert_table
from backhaul_spark.rules.config import plan_from
from backhaul_spark.rules.engine import Engine
from backhaul_spark.rules.recompute import Recompute
from backhaul_spark.rules.twins import Twins
from tests.support.simulated_hub import simulated_hub
from tests.support.spark_frames import task
from tests.support.twin_batches import T0, S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, tzinfo=UTC)


class History:
    """What the hub stored, in the order in which it did."""

    def __init__(self) -> None:
        self.messages: list[tuple[float, str, bytes]] = []
        self._seqs: dict[tuple[str, str], int] = {}

    def _seq(self, device: str, lane: str) -> int:
        self._seqs[device, lane] = self._seqs.get((device, lane), 0) + 1
        return self._seqs[device, lane]

    def frame(self, stored_s: float, device: str, *points: tuple[str, str, float, float]) -> None:
        """Add readings (node, type, seconds, value) of one node."""
        made = [Point(node, type_, T0 + int(at * S), value) for node, type_, at, value in points]
        body = encode_frame(made, epoch=1, seq=self._seq(device, "bulk"))
        self.messages.append((stored_s, f"up.{device}.f.{points[0][0]}", body))

    def limit(self, stored_s: float, device: str, value: float) -> None:
        point = Point("config", "temp_max", T0 + int(stored_s * S), value)
        body = encode_point(point, epoch=1, seq=self._seq(device, "live"))
        self.messages.append((stored_s, f"up.{device}.p.config.temp_max.%", body))

    def limit_at_hub(self, stored_s: float, device: str, value: float) -> tuple[str, bytes]:
        """Add a threshold that the hub wrote; return what stands in DOWN."""
        point = Point("config", "temp_max", T0 + int(stored_s * S), value, origin="hub:ann")
        message = (f"in.{device}.p.config.temp_max.%", encode_point(point, epoch=0, seq=0))
        self.messages.append((stored_s, *message))
        return message

    def mark(self, stored_s: float, device: str, why: str) -> None:
        said = json.dumps({"epoch": 1, "lanes": {}, "why": why}).encode()
        point = Point("", "mark", T0 + int(stored_s * S), Opaque(JSON, said))
        body = encode_point(point, epoch=1, seq=self._seq(device, "live"))
        self.messages.append((stored_s, f"up.{device}.e.mark", body))

    def parts(self, every_s: float) -> list[tuple[float, Any]]:
        """Return batches of messages as the source has them, each with the time of its end."""
        self.messages.sort(key=lambda message: message[0])
        end_s = self.messages[-1][0] + every_s
        found, at_s, first = [], every_s, 1
        while at_s <= end_s:
            part = [m for m in self.messages if at_s - every_s <= m[0] < at_s]
            stored = Stored(
                list(range(first, first + len(part))),
                [subject for _, subject, _ in part],
                [
                    (START + timedelta(seconds=s)).isoformat().replace("+00:00", "Z")
                    for s, _, _ in part
                ],
                [body for _, _, body in part],
            )
            first += len(part)
            found.append((at_s, message_batch("UP_00", stored) if part else None))
            at_s += every_s
        return found


def a_day_of_three_vehicles() -> History:
    dice, history = random.Random(7), History()
    history.limit(0.5, "B", 70)
    for minute in range(240):
        at = minute * 60.0
        for device in "ABC":
            if device == "C" and 60 <= minute < 90:
                continue  # no link; its readings come in one piece afterwards
            if device == "A" and 120 <= minute < 130:
                continue  # silent, and never explained
            spans = range(60, 91) if device == "C" and minute == 90 else [minute]
            for span in spans:
                when = span * 60.0
                temps = [
                    (
                        "battery",
                        "temp",
                        when + n,
                        62.0 + dice.random() * 2 if span % 37 < 5 else 40.0,
                    )
                    for n in range(3)
                ]
                fall = 0.4 * span if device == "B" else 0.01 * span
                history.frame(at + 5, device, ("battery", "soc", when, 95 - fall), *temps)
                history.frame(at + 5, device, ("cpu", "load", when, 0.1 if span < 150 else 0.9))
    history.limit(6005, "B", 61)
    history.mark(5406, "C", "link")
    return history


def in_the_stream(history: History, every_s: float) -> list[dict[str, Any]]:
    plan = plan_from({}, "test")
    engine, twins, wanted = Engine(plan), Twins(plan), Wanted(plan.series, plan.heads, 1)
    alerts = []
    for at_s, part in history.parts(every_s):
        now_ns = T0 + int(at_s * S)
        if part is not None:
            rows = sample_rows(part, wanted)
            columns = (rows.column(name).to_pylist() for name in ("messages", "samples", "said"))
            batch = Batch.join(Batch.unpack(*one) for one in zip(*columns, strict=True))
            alerts += engine.take(twins, batch, now_ns)[0]
        alerts += engine.tick(twins, now_ns, now_ns)[0]
    found: list[dict[str, Any]] = alert_table(alerts).to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Tables with the history above."""
    ingest = Ingest(str(tmp_path), SYSTEM_CLOCK)
    for number, (_, part) in enumerate(a_day_of_three_vehicles().parts(20_000)):
        if part is not None:
            report = task(str(tmp_path), ingest.tables.next_ingest, part)
            ingest.commit("app", number, [report])
    return str(tmp_path)


def test_stream_and_table_give_the_same_alerts(root: str) -> None:
    streamed = in_the_stream(a_day_of_three_vehicles(), 5.0)
    assert streamed == in_the_stream(a_day_of_three_vehicles(), 60.0)
    found = Recompute(root, plan_from({}, "test")).run(None, None).to_pylist()
    assert sorted(found, key=lambda row: str(row["id"])) == streamed
    said = {(row["device"], row["rule"], row["kind"], row["late"]) for row in streamed}
    assert said >= {
        ("A", "temperature", "raised", False),
        ("B", "battery", "raised", False),
        ("B", "temperature", "raised", False),  # after its threshold came down
        ("C", "temperature", "raised", True),
        ("A", "silence", "raised", False),
        ("C", "silence", "cleared", False),
    }
    texts = {
        row["device"]: row["text"]
        for row in streamed
        if (row["rule"], row["kind"]) == ("silence", "cleared")
    }
    assert "without an explanation" in texts["A"]
    assert "the link was down" in texts["C"]


def test_a_threshold_counts_that_was_written_long_before_the_vehicle_first_spoke(
    tmp_path: Path,
) -> None:
    history = History()
    for minute in range(8):
        at = minute * 60.0
        for device in "AB" if minute >= 5 else "A":
            temps = [("battery", "temp", at + n, 80.0) for n in range(5)]
            history.frame(at + 5, device, *temps)
    [(_, part)] = history.parts(20_000)
    ingest = Ingest(str(tmp_path), SYSTEM_CLOCK)
    ingest.commit("app", 0, [task(str(tmp_path), ingest.tables.next_ingest, part)])
    plan = plan_from({}, "test")

    def hot(*written: HeadWord) -> set[str]:
        alerts = Recompute(str(tmp_path), plan, written).run(None, None).to_pylist()
        return {row["device"] for row in alerts if row["rule"] == "temperature"}

    assert hot() == {"A", "B"}
    assert hot(HeadWord("B", 0, T0, "hub:ann", 0, 90.0)) == {"A"}


@pytest.mark.nats
def test_thresholds_written_at_the_hub_are_asked_for_there(root: str, tmp_path: Path) -> None:
    history = a_day_of_three_vehicles()
    with simulated_hub(tmp_path / "hub") as hub:
        hub.put_down("in.A.c.1", b"a command")
        hub.put_down(*history.limit_at_hub(3000, "A", 90))
        hub.put_down(*history.limit_at_hub(9000, "C", 50))
        words = ["recompute-alerts", "--table-root", root, "--json"]
        asked = [*words, "--hub-dir", str(hub.directory)]
        said = CliRunner().invoke(cli, asked, catch_exceptions=False)
        late = CliRunner().invoke(
            cli, [*asked, "--from", "2026-01-01T01:00"], catch_exceptions=False
        )
        one = CliRunner().invoke(cli, [*asked, "--device", "B"], catch_exceptions=False)
    close_connections()
    streamed = [row["id"] for row in in_the_stream(history, 60.0)]
    assert sorted(json.loads(row)["id"] for row in said.stdout.splitlines()) == streamed
    without = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert sorted(json.loads(row)["id"] for row in without.stdout.splitlines()) != streamed
    assert "thresholds written at the hub at some time: 2." in said.stderr
    assert "thresholds written at the hub after 2026-01-01 01:00: 1." in late.stderr
    assert one.stderr == ""


def test_a_hub_without_the_login_is_refused_with_what_to_do(root: str, tmp_path: Path) -> None:
    words = ["recompute-alerts", "--table-root", root, "--hub-dir", str(tmp_path)]
    refused = CliRunner().invoke(cli, words).exception
    assert isinstance(refused, OptionError)
    assert "creds/twin.creds" in str(refused)


def test_the_command_takes_another_limit_one_device_and_a_span(root: str, tmp_path: Path) -> None:
    config = tmp_path / "twin.toml"
    config.write_text("[rules.temperature]\nlimit_c = 30\n")
    words = ["recompute-alerts", "--table-root", root, "--config", str(config), "--device", "A"]
    said = CliRunner().invoke(cli, [*words, "--to", "2026-01-01T00:10:00"], catch_exceptions=False)
    assert (
        said.output == "2026-01-01 00:00:02 A temperature raised: " + said.output.split(": ", 1)[1]
    )
    rows = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False).output.splitlines()
    assert {json.loads(row)["device"] for row in rows} == {"A"}


def test_without_tables_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(TableMissingError):
        Recompute(str(tmp_path), plan_from({}, "test")).run(None, None)
