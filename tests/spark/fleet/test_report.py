"""The page of a day: what it says, that it needs nothing else, and that no name gets out of its place."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.cli.main import cli
from backhaul_spark.errors import NothingFoundError, OptionError, TableMissingError
from backhaul_spark.fleet import charts
from backhaul_spark.fleet.job import FleetJob
from backhaul_spark.fleet.report import Report
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.query.plot import NAME_LENGTH_MAX, plain
from backhaul_spark.tables.delta import make_table
from backhaul_spark.tables.schemas import ROLLUPS_TABLE
from tests.spark.fleet.reported_hours import report_hours
from tests.support.fleet_rollups import DAY, SimulatedFleet, days_before

if TYPE_CHECKING:
    from datetime import date

pytestmark = pytest.mark.slow

SCRIPT = "<script>alert(1)</script>"
QUOTES = "\"' onerror=alert(1) $x^2$ &amp; \u202e\u6f22 {{ 7 * 7 }}"


class Page(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def images(self) -> list[str]:
        return [attrs["src"] or "" for tag, attrs in self.tags if tag == "img"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of a fleet whose vehicles call themselves what they like."""
    root = tmp_path_factory.mktemp("hostile")
    fleet = SimulatedFleet(150, 3, stuck=(1,), silent=(2,))
    fleet.models = [{"VAN-1": SCRIPT, "VAN-2": QUOTES}.get(name, name) for name in fleet.models]
    make_table(str(root), ROLLUPS_TABLE)
    for day in [*days_before(1), DAY]:
        fleet.write(str(root), day)
    report_hours(root, fleet, also_silent=False)
    for day in [*days_before(1), DAY]:
        FleetJob(str(root), SYSTEM_CLOCK, FleetSettings()).run(day)
    return root


@pytest.fixture(scope="module")
def page(hostile: Path) -> Page:
    return Page(Report(str(hostile), SYSTEM_CLOCK).page(DAY)[0])


def test_the_page_says_what_was_found_and_how_complete_the_day_is(page: Page) -> None:
    for words in (
        "Fleet on 2026-01-20",
        "149devices with readings",
        "99.3 %of device-hours have readings",
        "cabin.temp sticks at",
        "no readings, seen last on 2026-01-19",
        "1 of 150 devices have hours that are not complete",
    ):
        assert words in page.text.replace("\n", "")


def test_what_vehicles_say_is_text_and_never_markup(page: Page) -> None:
    assert SCRIPT in page.text
    assert QUOTES in page.text
    assert {tag for tag, _ in page.tags} & {"script", "iframe", "object", "link"} == set()
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    [policy] = [attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs]
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_the_page_needs_nothing_but_itself(page: Page) -> None:
    assert len(page.images()) == 4
    for source in page.images():
        kind, _, data = source.partition(",")
        assert kind == "data:image/svg+xml;base64"
        root = ElementTree.fromstring(base64.b64decode(data))
        assert root.tag.endswith("svg")
    urls = [attrs.get(name) for _, attrs in page.tags for name in ("src", "href", "action")]
    assert all(url is None or url.startswith("data:") for url in urls)
    assert "url(" not in page.text


def test_the_command_writes_the_same_page_and_says_where(
    hostile: Path, page: Page, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "reports"
    asked = ["report", "--table-root", str(hostile), "--day", str(DAY), "--out", str(out)]
    run = CliRunner().invoke(cli, [*asked, "--json"])
    assert run.exit_code == 0, run.output
    said: dict[str, Any] = json.loads(run.stdout)
    assert said["path"] == str(out / "fleet-2026-01-20.html")
    assert [each.name for each in out.iterdir()] == ["fleet-2026-01-20.html"]
    written = (out / "fleet-2026-01-20.html").read_text()
    assert len(written.encode()) == said["size_bytes"] < 5_000_000
    assert Page(written).images() == page.images()


def test_without_a_day_pages_that_are_missing_or_out_of_date_are_written(tmp_path: Path) -> None:
    root, out = str(tmp_path / "root"), tmp_path / "pages"
    fleet = SimulatedFleet(60, 3)
    make_table(root, ROLLUPS_TABLE)
    assert Report(root, SYSTEM_CLOCK).due(str(out)) == []
    [before] = days_before(1)
    for day in (before, DAY):
        fleet.write(root, day)
        FleetJob(root, SYSTEM_CLOCK, FleetSettings()).run(day)
    pages = Report(root, SYSTEM_CLOCK)
    pages.write(before, str(out))
    asked = ["report", "--table-root", root, "--out", str(out)]
    run = CliRunner().invoke(cli, [*asked, "--json"], catch_exceptions=False)
    assert json.loads(run.stdout)["path"] == str(out / f"fleet-{DAY}.html")
    run = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert run.stdout == "every page says what stands\n"
    FleetJob(root, SYSTEM_CLOCK, FleetSettings()).run(DAY)
    assert pages.due(str(out)) == []  # it was judged again, and says what it said

    class Meanwhile(Report):
        """Something else is said of the day while its page is drawn."""

        def page(self, day: date) -> tuple[str, int, int]:
            drawn = super().page(day)
            report_hours(Path(root), fleet)
            FleetJob(root, SYSTEM_CLOCK, FleetSettings()).run(DAY)
            return drawn

    Meanwhile(root, SYSTEM_CLOCK).write(DAY, str(out))
    assert pages.due(str(out)) == [DAY]
    pages.write(DAY, str(out))
    assert pages.due(str(out)) == []


def test_a_day_that_was_not_judged_has_no_page(hostile: Path, tmp_path: Path) -> None:
    [before] = days_before(5)[:1]
    with pytest.raises(NothingFoundError) as error:
        Report(str(hostile), SYSTEM_CLOCK).write(before, str(tmp_path))
    assert error.value.hint == f"run `backhaul-spark anomalies --day {before}` first"
    with pytest.raises(TableMissingError):
        Report(str(tmp_path), SYSTEM_CLOCK).due(str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="a directory to write to"):
        Report(str(hostile), SYSTEM_CLOCK).write(DAY, str(tmp_path / "file"))


def test_pictures_of_a_hundred_thousand_devices_stay_small() -> None:
    codes = np.random.default_rng(1).integers(0, 5, (100_000, 24)).astype(np.int8)
    assert len(charts.banded_heat_map(codes)) < 300_000
    names = [f"SIM-{number:06d}" for number in range(40)]
    assert len(charts.named_heat_map(names, codes[:40])) < 800_000


def test_names_in_pictures_are_short_and_no_formulas() -> None:
    assert plain("battery.soc") == "battery.soc"
    assert plain("\u6f22\u202e\n$") == r"???\$"
    assert len(plain("x" * 500)) == NAME_LENGTH_MAX
    days = days_before(2)
    drawn = charts.small_multiples(days, [("$\\frac{", np.array([1.0, np.nan]))])
    assert re.match("data:image/svg", drawn)
