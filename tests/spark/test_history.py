"""Questions to the tables, and the pictures of the answers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result
from matplotlib.colors import to_hex, to_rgb
from matplotlib.dates import num2date
from matplotlib.figure import Figure

from backhaul_codec.programs.command_line import harmless
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark import palette
from backhaul_spark.cli.main import cli, main
from backhaul_spark.errors import NothingFoundError, OptionError, TableMissingError
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.jobs.maintain import Keeping, Maintenance
from backhaul_spark.query.history import (
    Answer,
    History,
    choose_resolution,
    parse_series,
    parse_time,
)
from backhaul_spark.query.plot import SPARSE_MAX, broken, draw, segments
from backhaul_spark.rollup.rollup import Rollup, run_here
from tests.support.spark_fleet import DAY_NS, MINUTE_NS, Fleet
from tests.support.spark_frames import T0_NS, frame, message_batch, stored, task

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twelve hours of a reading a second, with a silence from hour 4 to 6; a mode; odd times."""
    path = str(tmp_path_factory.mktemp("tables"))
    ingest = Ingest(path, SYSTEM_CLOCK)
    bodies = [
        frame(hour + 1, [20.0 + hour + (s % 60) / 60 for s in range(3600)], type_="temp")
        for hour in range(12)
        if hour not in (4, 5)
    ]
    bodies.append(frame(20, ["idle", "drive"], type_="mode", start_ns=1_767_225_600_000_000_000))
    bodies.append(frame(21, [1.0, 2.0, 3.0], type_="temp", start_ns=0))
    bodies.append(frame(22, [2**64 - 1, 7], type_="count", start_ns=1_767_225_600_000_000_000))
    report = task(path, ingest.tables.next_ingest, message_batch("UP_00", stored(bodies)))
    ingest.commit("app", 0, [report])
    Rollup(path, SYSTEM_CLOCK, run_here).run()
    return path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_the_whole_history_comes_by_minute_and_an_hour_comes_raw(root: str) -> None:
    temp = parse_series("VID-001", "battery.temp")
    whole = History(root).ask(temp)
    assert (whole.resolution, whole.rows.num_rows, whole.untimed) == ("1m", 600, 3)
    assert whole.rolled_up_to == whole.ingested
    hour = History(root).ask(temp, START, START + timedelta(hours=1))
    assert (hour.resolution, hour.rows.num_rows) == ("raw", 3600)
    assert hour.rows.column("value").to_pylist()[:2] == [20.0, 20.0 + 1 / 60]
    hours = History(root).ask(temp, resolution="1h")
    assert hours.rows.column("count").to_pylist() == [3600] * 10


def test_bounds_are_from_included_to_excluded(root: str) -> None:
    temp = parse_series("VID-001", "battery.temp")
    answer = History(root).ask(temp, START + timedelta(seconds=1), START + timedelta(seconds=3))
    assert answer.rows.num_rows == 2


def test_text_and_unsigned_numbers_are_answered_too(root: str) -> None:
    mode = History(root).ask(parse_series("VID-001", "battery.mode"))
    assert mode.rows.column("text").to_pylist() == ["idle", "drive"]
    count = History(root).ask(parse_series("VID-001", "battery.count"))
    assert count.rows.column("value").to_pylist() == [float(2**64 - 1), 7.0]


def test_whole_numbers_are_printed_as_they_were_recorded(root: str, tmp_path: Path) -> None:
    """Not as the nearest float64, of which 2^53 + 1 has none of its own."""
    common = ("history", "--table-root", root, "--device", "VID-001", "--series", "battery.count")
    raw = json.loads(invoke(*common, "--json").output)
    assert [row["value"] for row in raw["rows"]] == [2**64 - 1, 7]
    assert [line.split()[-1] for line in invoke(*common).output.splitlines()[1:]] == [
        str(2**64 - 1),
        "7",
    ]
    ingest = Ingest(str(tmp_path), SYSTEM_CLOCK)
    bodies = [frame(1, [2**53 + 1, -(2**63)], type_="soc"), frame(2, [1234567.25], type_="soc")]
    report = task(str(tmp_path), ingest.tables.next_ingest, message_batch("UP_00", stored(bodies)))
    ingest.commit("app", 0, [report])
    of = ("history", "--table-root", str(tmp_path), "--device", "VID-001")
    text = invoke(*of, "--series", "battery.soc").output
    values = [line.split()[-1] for line in text.splitlines()[1:]]
    assert sorted(values) == ["-9223372036854775808", "1234567.25", "9007199254740993"]


def test_what_is_not_there_is_said_with_what_is(root: str) -> None:
    with pytest.raises(NothingFoundError) as caught:
        History(root).ask(parse_series("VID-001", "battery.volt"))
    assert caught.value.hint == "VID-001 has: battery.count, battery.mode, battery.temp"
    with pytest.raises(NothingFoundError) as caught:
        History(root).ask(parse_series("VID-999", "battery.temp"))
    assert "completeness" in caught.value.hint
    temp = parse_series("VID-001", "battery.temp")
    with pytest.raises(NothingFoundError):
        History(root).ask(temp, START + timedelta(hours=4), START + timedelta(hours=5))


def test_a_text_with_orders_stays_one_line_of_history(tmp_path: Path) -> None:
    ingest = Ingest(str(tmp_path), SYSTEM_CLOCK)
    body = frame(1, ["\x1b]0;owned\x07", "a\nall is well"], type_="mode")
    part = task(str(tmp_path), ingest.tables.next_ingest, message_batch("UP_00", stored([body])))
    ingest.commit("app", 0, [part])
    words = ["history", "--table-root", str(tmp_path), "--device", "VID-001"]
    said = invoke(*words, "--series", "battery.mode").output
    assert len(said.splitlines()) == 3
    assert harmless(said) == said
    assert '"\\u001b]0;owned\\u0007"' in said


def test_wrong_questions_are_refused(root: str, tmp_path: Path) -> None:
    for text in ("battery", "a.b.c.d", "bat tery.soc"):
        with pytest.raises(OptionError):
            parse_series("VID-001", text)
    with pytest.raises(OptionError):
        parse_time("--from", "yesterday")
    with pytest.raises(OptionError, match="a time before"):
        History(root).ask(parse_series("VID-001", "battery.temp"), START, START)
    with pytest.raises(TableMissingError, match="points"):
        History(str(tmp_path))


def test_series_and_times_are_read() -> None:
    assert str(parse_series("V", "battery.cell.3%2E1")) == "battery.cell.3.1"
    assert parse_time("--from", "2026-01-01") == START
    assert parse_time("--from", "2026-01-01T02:00:00+02:00") == START
    assert choose_resolution(START, START + timedelta(days=11)) == "1h"


def test_gaps_lift_the_pen() -> None:
    time = np.array([0, 1, 2, 3, 60, 61, 62], dtype="datetime64[s]")
    at, usual_us = broken(time)
    assert at.tolist() == [3]
    assert usual_us == 1e6
    assert broken(time[:1])[0].tolist() == []


def drawn(monkeypatch: pytest.MonkeyPatch, answer: Answer, path: str, unit: str = "") -> Axes:
    """Return the picture as it was saved."""
    found: list[Figure] = []
    save = Figure.savefig

    def noted(figure: Figure, *args: Any) -> None:
        found.append(figure)
        save(figure, *args)

    monkeypatch.setattr(Figure, "savefig", noted)
    draw(answer, path, unit)
    (axes,) = found[-1].axes
    return axes


def bars(axes: Axes) -> list[tuple[float, float, float]]:
    """Return where bands begin and end in time, and at which height they are."""
    boxes = [path.get_extents() for each in axes.collections for path in each.get_paths()]
    return [(box.x0, box.x1, (box.y0 + box.y1) / 2) for box in boxes]


@pytest.mark.parametrize("resolution", ["raw", "1m", "1h"])
def test_a_picture_of_texts_is_a_band_for_each_state_in_its_time(
    root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    resolution: Literal["raw", "1m", "1h"],
) -> None:
    """An axis without data would begin in 1970, and say nothing."""
    answer = History(root).ask(parse_series("VID-001", "battery.mode"), resolution=resolution)
    axes = drawn(monkeypatch, answer, str(tmp_path / "mode.png"))
    labels = [each.get_text() for each in axes.get_yticklabels()]
    ends = [num2date(each) for each in axes.get_xlim()]  # type: ignore[no-untyped-call]
    assert all(abs(each - START) < timedelta(days=1) for each in ends)
    found = bars(axes)
    if resolution == "raw":
        assert labels == ["idle", "drive"]
        (_, first_ends, _), (second_begins, last, _) = found
        assert first_ends == second_begins < last  # the last one lasts
        assert [round(at) for *_, at in found] == [0, 1]
    else:  # of a window the last text counts; a text it began with is there, too
        assert sorted(labels) == ["drive"]
        assert round(found[0][2]) == labels.index("drive")


def readings(number: int, values: Sequence[float | int], step: timedelta) -> pa.Table:
    whole = [each if isinstance(each, int) else None for each in values]
    return pa.table(
        {
            "time": pa.array([START + n * step for n in range(number)]),
            "value": pa.array(values, pa.float64()),
            "whole": pa.array(whole, pa.decimal128(20, 0)),
            "text": pa.nulls(number, pa.string()),
        }
    )


def test_whole_numbers_that_are_few_and_stay_are_states_and_others_are_a_line(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = History(root).ask(parse_series("VID-001", "battery.temp"), resolution="raw")
    path, step = str(tmp_path / "a.png"), timedelta(seconds=10)
    gears = replace(answer, rows=readings(90, [10] * 30 + [2] * 30 + [10] * 30, step))
    axes = drawn(monkeypatch, gears, path)
    assert [each.get_text() for each in axes.get_yticklabels()] == ["2", "10"]
    restless = replace(answer, rows=readings(90, [n % 3 for n in range(90)], step))
    assert segments(restless) is None
    assert segments(replace(answer, rows=readings(90, [n // 9 for n in range(90)], step))) is None
    axes = drawn(monkeypatch, restless, path)
    assert np.asarray(axes.lines[0].get_ydata()).shape == (90,)


def test_few_points_are_points_and_of_more_the_pen_is_lifted_at_gaps(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = History(root).ask(parse_series("VID-001", "battery.temp"), resolution="raw")
    path, step = str(tmp_path / "a.png"), timedelta(minutes=1)
    few = replace(answer, rows=readings(SPARSE_MAX, [n / 2 for n in range(SPARSE_MAX)], step))
    (line,) = drawn(monkeypatch, few, path).lines
    assert (line.get_linestyle(), line.get_marker()) == ("None", "o")
    rows = readings(200, [n / 2 for n in range(200)], step)
    cut = pa.concat_tables([rows.slice(0, 100), rows.slice(150)])
    axes = drawn(monkeypatch, replace(answer, rows=cut), path)
    assert axes.lines[0].get_linestyle() == "-"
    assert np.isnan(axes.lines[0].get_ydata()).sum() == 1
    [gap] = bars(axes)
    assert num2date(gap[0]) == START + 99 * step  # type: ignore[no-untyped-call]
    assert num2date(gap[1]) == START + 150 * step  # type: ignore[no-untyped-call]


def test_windows_have_their_band_and_how_they_stand_and_no_key_lies_over_them(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = History(root).ask(parse_series("VID-001", "battery.temp"), resolution="1m")
    states = ["complete"] * 300 + ["waiting"] * 300
    at = answer.rows.schema.get_field_index("state")
    answer = replace(answer, rows=answer.rows.set_column(at, "state", pa.array(states)))
    axes = drawn(monkeypatch, answer, str(tmp_path / "a.png"), "\N{DEGREE SIGN}C")
    assert any("in \N{DEGREE SIGN}C, by minute" in each.get_text() for each in axes.texts)
    legend = axes.get_legend()
    assert legend is not None
    assert [each.get_text() for each in legend.get_texts()] == ["silent", "complete", "waiting"]
    faces = [np.asarray(each.get_facecolor(), dtype=float) for each in axes.collections]
    drawn_colours = {to_hex(tuple(colour)) for face in faces for colour in face.reshape(-1, 4)}
    assert {palette.STATES["complete"], palette.STATES["waiting"]} <= drawn_colours
    band = palette.thin(palette.SERIES[0], palette.BAND_PART)
    assert band in drawn_colours
    assert contrast(band) > 1.4
    box, picture = legend.get_window_extent(), axes.get_window_extent()
    assert box.y0 >= picture.y1


def contrast(colour: str) -> float:
    """Return how far a colour stands out against white, 1 for not at all (WCAG)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 1.05 / (0.05 + float(np.dot(linear, (0.2126, 0.7152, 0.0722))))


def test_the_unit_of_a_series_comes_from_the_configuration(root: str, tmp_path: Path) -> None:
    config = tmp_path / "fleet.toml"
    config.write_text('[fleet.units]\n"battery.temp" = "\N{DEGREE SIGN}C"\n')
    common = ("history", "--table-root", root, "--device", "VID-001", "--series", "battery.temp")
    asked = (*common, "--plot", str(tmp_path / "a.svg"), "--config", str(config))
    assert invoke(*asked).exit_code == 0
    config.write_text("[fleet.units]\nbattery.temp = 1\n")
    assert "fleet.units" in str(invoke(*asked).exception)


def test_a_picture_that_would_say_nothing_is_refused(root: str, tmp_path: Path) -> None:
    answer = History(root).ask(parse_series("VID-001", "battery.mode"))
    many = pa.table(
        {
            "time": pa.array([START + timedelta(seconds=n) for n in range(21)]),
            "value": pa.nulls(21, pa.float64()),
            "text": pa.array([f"message {n}" for n in range(21)]),
        }
    )
    with pytest.raises(OptionError, match="at most 20 different texts, this one has 21"):
        draw(replace(answer, rows=many), str(tmp_path / "many.png"))
    nothing = many.slice(0, 2).set_column(2, "text", pa.nulls(2, pa.string()))
    nothing = nothing.set_column(1, "value", pa.array([math.nan, math.inf]))
    with pytest.raises(OptionError, match="numbers or texts"):
        draw(replace(answer, rows=nothing), str(tmp_path / "nothing.png"))
    with pytest.raises(OptionError, match="a file that ends in one of"):
        draw(answer, str(tmp_path / "plot.xls"))
    with pytest.raises(OptionError, match="can be written"):
        draw(answer, str(tmp_path / "no" / "plot.png"))


def test_names_in_a_picture_are_no_formulas(root: str, tmp_path: Path) -> None:
    answer = History(root).ask(parse_series("VID-001", "battery.temp"))
    odd = replace(answer, series=answer.series._replace(key="$\\frac$"))
    draw(odd, str(tmp_path / "odd.png"))
    assert (tmp_path / "odd.png").stat().st_size > 0


@pytest.mark.parametrize("resolution", ["raw", "1m", "1h"])
def test_a_picture_is_drawn(root: str, tmp_path: Path, resolution: str) -> None:
    file = tmp_path / "plot.png"
    answer = History(root).ask(
        parse_series("VID-001", "battery.temp"),
        resolution=resolution,  # type: ignore[arg-type]
    )
    draw(answer, str(file))
    assert file.read_bytes().startswith(b"\x89PNG")


def test_the_command_prints_json_and_writes_the_picture(root: str, tmp_path: Path) -> None:
    common = ("history", "--table-root", root, "--device", "VID-001", "--series", "battery.temp")
    result = invoke(*common, "--json", "--resolution", "1h", "--plot", str(tmp_path / "a.png"))
    answer = json.loads(result.output)
    assert (answer["resolution"], len(answer["rows"]), answer["points_without_time"]) == (
        "1h",
        10,
        3,
    )
    assert answer["rollups_behind"] is False
    assert (tmp_path / "a.png").exists()
    text = invoke(*common).output
    assert "battery.temp, 1m, 600 rows" in text
    assert "3 points without a believable time" in text


def test_completeness_prints_a_line_for_each_lane(root: str) -> None:
    result = invoke("completeness", "--table-root", root)
    assert result.output == (
        "VID-001 bulk epoch 1: waiting, 36,007 points in 13 messages, sequence 1 to 22, "
        "9 missing (holes 5-6, 13-19)\n"
    )
    said = json.loads(invoke("completeness", "--table-root", root, "--json").output)
    assert said["hours"] == [], "this vehicle has marked nothing"
    [state] = said["lanes"]
    assert (state["state"], state["missing"], state["holes"]) == ("waiting", 9, [[5, 6], [13, 19]])


def test_an_error_is_a_line_with_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["backhaul-spark", "completeness", "--table-root", str(tmp_path)]
    )
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert "no table at" in (said := capsys.readouterr().err)
    assert "backhaul-spark ingest" in said


def test_days_whose_points_retention_has_taken_are_answered_from_their_rollups(
    tmp_path: Path,
) -> None:
    fleet = Fleet(tmp_path, T0_NS + 5 * DAY_NS)
    fleet.send((30 * MINUTE_NS, 1.0), device="VID-OLD")
    for day in range(5):
        fleet.send((day * DAY_NS + 90 * MINUTE_NS, float(day)))
    fleet.rollup()
    Maintenance(fleet.root, fleet.clock).run(Keeping(points_days=2))
    soc, history = parse_series("VID-001", "battery.soc"), History(fleet.root)
    whole = history.ask(soc)
    assert (whole.resolution, whole.rows.num_rows) == ("1m", 5)
    assert whole.start == START + timedelta(hours=1)
    hour = START + timedelta(hours=1), START + timedelta(hours=2)
    assert history.ask(soc, *hour).resolution == "1m"
    assert history.ask(parse_series("VID-OLD", "battery.soc")).rows.num_rows == 1
    late = START + timedelta(days=4), START + timedelta(days=4, hours=2)
    assert history.ask(soc, *late).resolution == "raw"
    with pytest.raises(NothingFoundError) as caught:
        history.ask(parse_series("VID-OLD", "battery.volt"))
    assert caught.value.hint == "VID-OLD has: battery.soc"
