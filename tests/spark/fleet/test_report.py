"""The page of a day: what it says, that it needs nothing else, and that no name gets out of its place."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.image import imread

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark import palette
from backhaul_spark.cli.main import cli
from backhaul_spark.errors import NothingFoundError, OptionError, TableMissingError
from backhaul_spark.fleet.hours import COMPLETE, WAITING
from backhaul_spark.fleet.job import FleetJob
from backhaul_spark.fleet.readings import Signal
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.fleet.standing import standing
from backhaul_spark.page_links import PageLinks
from backhaul_spark.query.plot import NAME_LENGTH_MAX, plain
from backhaul_spark.report import charts
from backhaul_spark.report.evidence import Compared, PeerEvidence, Whereabouts
from backhaul_spark.report.report import Report
from backhaul_spark.tables.delta import make_table
from backhaul_spark.tables.schemas import ROLLUPS_TABLE
from tests.spark.fleet.reported_hours import report_hours
from tests.support.fleet_rollups import DAY, SimulatedFleet, days_before

if TYPE_CHECKING:
    from datetime import date

pytestmark = pytest.mark.slow

SCRIPT = "<script>alert(1)</script>"
PAGES = "https://hub.example:8443/pages/"
STUCK, SILENT = '"><img src=x onerror=alert(1)>', "../#/alerts?x=1&y='2"
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
    fleet = SimulatedFleet(150, 3, stuck=(1,), silent=(2,), addressed=True)
    fleet.names[1:3] = [STUCK, SILENT]
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


@pytest.fixture(scope="module")
def linked(hostile: Path) -> Page:
    return Page(Report(str(hostile), SYSTEM_CLOCK, pages=PageLinks(PAGES)).page(DAY)[0])


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
    assert STUCK in page.text
    assert SILENT in page.text
    assert {tag for tag, _ in page.tags} & {"script", "iframe", "object", "link"} == set()
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    [policy] = [attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs]
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_the_page_needs_nothing_but_itself(page: Page) -> None:
    # Five states, two anomalies, the map, and four of the fleet.
    assert len(page.images()) == 5 + 2 + 1 + 4
    for source in page.images():
        kind, _, data = source.partition(",")
        assert kind == "data:image/svg+xml;base64"
        root = ElementTree.fromstring(base64.b64decode(data))
        assert root.tag.endswith("svg")
    urls = [attrs.get(name) for _, attrs in page.tags for name in ("src", "href", "action")]
    assert all(url is None or url.startswith("data:") for url in urls)
    assert "url(" not in page.text


def test_links_lead_to_the_device_on_its_day_whatever_it_calls_itself(linked: Page) -> None:
    links = [attrs["href"] or "" for tag, attrs in linked.tags if tag == "a"]
    assert not any(name.startswith("on") for _, attrs in linked.tags for name in attrs)
    assert all(link.startswith("https://hub.example:8443/pages/#/") for link in links)
    of_the_day = {"range": ["2026-01-20T00:00:00.000Z~2026-01-21T00:00:00.000Z"]}
    found = set()
    for link in links:
        path, _, query = urlsplit(link).fragment.partition("?")
        said = parse_qs(query)
        assert of_the_day.items() <= said.items()
        found.add((*(unquote(each) for each in path.split("/")[1:]), *said.get("series", ())))
    assert found == {
        ("fleet",),
        *{("device", STUCK, "cabin.temp"), ("device", STUCK), ("device", SILENT)},
    }


def test_a_link_is_an_address_of_http_or_nothing(hostile: Path, tmp_path: Path) -> None:
    for url in ("javascript:alert(1)", "hub.example", "https://", "https://h/#x", "https://[x"):
        with pytest.raises(OptionError, match="--page-url"):
            PageLinks(url)
    asked = ["report", "--table-root", str(hostile), "--day", str(DAY), "--out", str(tmp_path)]
    run = CliRunner().invoke(cli, [*asked, "--page-url", PAGES], catch_exceptions=False)
    assert run.exit_code == 0
    assert f'href="{PAGES}#/fleet?' in (tmp_path / f"fleet-{DAY}.html").read_text()


def test_an_anomaly_stands_beside_its_peers(hostile: Path) -> None:
    [stuck, _] = found = standing(str(hostile), DAY)
    assert (stuck["kind"], stuck["device"]) == ("stuck", STUCK)
    rows = SimulatedFleet(150, 3, stuck=(1,), silent=(2,), addressed=True)
    rows.names[1:3] = [STUCK, SILENT]
    units = FleetSettings(units={"cabin.temp": "\N{DEGREE SIGN}C"})
    evidence = PeerEvidence(str(hostile), units, DAY, sorted(rows.names), SYSTEM_CLOCK.now_ns())
    [(of, compared)] = evidence.compared(found).items()
    assert (of, compared.what) == (stuck["id"], "cabin.temp, \N{DEGREE SIGN}C")
    assert np.ptp(compared.own[8:]) == 0
    assert np.ptp(compared.middle[8:]) > 1
    assert (compared.low <= compared.middle).all()
    assert (compared.middle <= compared.high).all()
    # It is none of its own peers, who are of its model and firmware.
    of_model = np.array([m == rows.models[1] for m in rows.models])
    peers = of_model & np.array([f == rows.firmwares[1] for f in rows.firmwares])
    peers[[1, 2]] = False
    level = rows.cells(Signal("cabin", "temp"), DAY).level
    assert compared.middle == pytest.approx(np.median(level[peers], axis=0))
    places = {
        each.device: each.last
        for each in evidence.places([Signal("gps", "lat"), Signal("gps", "lon")])
    }
    assert len(places) == 149
    assert places[STUCK] == pytest.approx((49.001, 8.423))
    assert evidence.places([Signal("gps", "lat")]) == []


def test_a_complete_hour_has_the_legends_colour_in_every_map() -> None:
    for code, state in ((COMPLETE, "complete"), (WAITING, "waiting")):
        picture = charts.banded_heat_map(np.full((30, 24), code, dtype=np.int8))
        svg = base64.b64decode(picture.partition(",")[2]).decode()
        [png] = re.findall(r"data:image/png;base64,([^\"]+)", svg)
        pixels = imread(BytesIO(base64.b64decode(png)))[:, :, :3]
        shown = {
            "#" + "".join(f"{round(255 * float(c)):02x}" for c in pixel)
            for pixel in pixels.reshape(-1, 3)
        }
        assert shown == {palette.STATES[state]}
        named = charts.named_heat_map(["VID-001"], np.full((1, 24), code, dtype=np.int8))
        assert palette.STATES[state] in base64.b64decode(named.partition(",")[2]).decode()


def test_pictures_have_the_colours_of_the_pages() -> None:
    tokens = Path(__file__).parents[3] / "hub/page/src/look/tokens.css"
    if not tokens.is_file():
        pytest.skip("the sources of the pages are not here")
    light = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}),", tokens.read_text()))
    assert {
        f"state-{name}": colour for name, colour in palette.STATES.items()
    }.items() <= light.items()
    assert tuple(light[f"series-{n}"] for n in range(1, 7)) == palette.SERIES
    named = {"text": palette.TEXT, "text-quiet": palette.QUIET, "ground": palette.GROUND, "surface": palette.SURFACE,
             "sunken": palette.SUNKEN, "line": palette.LINE, "line-strong": palette.LINE_STRONG, "accent": palette.ACCENT}  # fmt: skip
    assert named.items() <= light.items()


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
    spots = np.random.default_rng(1).normal(50, 1, (5000, 2, 1))
    places = [Whereabouts(f"SIM-{at}", *each) for at, each in enumerate(spots)]
    assert len(charts.fleet_map(places, names)) < 400_000
    hours = spots[:60].reshape(5, 24)
    compared = Compared("battery.temp", hours[0], hours[1] - 3, hours[2], hours[3] + 3)
    assert len(charts.comparison(compared)) < 12_000
    assert len(charts.strip(codes[0])) < 45_000


def test_names_in_pictures_are_short_and_no_formulas() -> None:
    assert plain("battery.soc") == "battery.soc"
    assert plain("\u6f22\u202e\n$") == r"???\$"
    assert len(plain("x" * 500)) == NAME_LENGTH_MAX
    days = days_before(2)
    drawn = charts.small_multiples(days, [("$\\frac{", np.array([1.0, np.nan]))])
    assert re.match("data:image/svg", drawn)
