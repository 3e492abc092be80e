"""`backhaul-spark ask`, its settings, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from backhaul_spark.cli.main import cli
from backhaul_spark.errors import OptionError
from backhaul_spark.questions.catalogue import questions
from backhaul_spark.questions.settings import QuestionsSettings

if TYPE_CHECKING:
    from click.testing import Result

    from tests.support.truck_world import TruckWorld

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs/questions.md"
# The queries of TSBS's use case "iot".
TSBS = {
    "last-loc",
    "single-last-loc",
    "low-fuel",
    "high-load",
    "stationary-trucks",
    "long-driving-sessions",
    "long-daily-sessions",
    "avg-vs-projected-fuel-consumption",
    "avg-daily-driving-duration",
    "avg-daily-driving-session",
    "avg-load",
    "daily-activity",
    "breakdown-frequency",
}


def asked(world: TruckWorld, *args: str) -> Result:
    result = CliRunner().invoke(cli, ["ask", "--table-root", world.root, *args])
    assert result.exit_code == 0, result.output
    return result


def test_all_questions_are_listed(world: TruckWorld) -> None:
    lines = asked(world).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(questions())


def test_an_answer_as_text_and_as_json(world: TruckWorld) -> None:
    text = asked(world, "last-location", "--device", "TRK-00003").stdout.splitlines()
    assert text[0] == questions()["last-location"].about
    assert text[1].split() == ["device", "driver", "at", "lat", "lon"]
    assert text[2].split()[:3] == ["TRK-00003", "Andy", "2026-01-02T23:56:00+00:00"]
    found = json.loads(asked(world, "last-location", "--json", "--of", "points").stdout)
    assert [row["device"] for row in found["rows"]] == [each.device for each in world.trucks]


def test_no_answer_says_where_series_are_named(world: TruckWorld, tmp_path: Path) -> None:
    config = tmp_path / "twin.toml"
    config.write_text('[questions]\nfuel = "tank.level"\n')
    assert "none; [questions]" in asked(world, "low-fuel", "--config", str(config)).stdout


def test_units_come_from_the_settings_of_the_fleet(world: TruckWorld, tmp_path: Path) -> None:
    config = tmp_path / "twin.toml"
    config.write_text('[fleet.units]\n"gps.speed" = "km/h"\n')
    found = json.loads(asked(world, "series", "--config", str(config), "--json").stdout)
    units = {(row["node"], row["type"]): row["unit"] for row in found["rows"]}
    assert units["gps", "speed"] == "km/h"
    assert units["truck", "fuel"] is None


def test_the_texts_are_printed(world: TruckWorld) -> None:
    text = asked(world, "low-fuel", "--sql").stdout
    assert text.startswith("CREATE OR REPLACE TEMPORARY VIEW fuel_last AS\nSELECT device,")
    assert text.endswith(questions()["low-fuel"].sql + ";\n")


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("no-such",), "one of average-load, "),
        (("low-fuel", "--to", "2026-01-01T00:00:30"), "a whole minute"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    world: TruckWorld, args: tuple[str, ...], error: str
) -> None:
    result = CliRunner().invoke(cli, ["ask", "--table-root", world.root, *args])
    assert isinstance(result.exception, OptionError)
    assert error in str(result.exception)


@pytest.mark.parametrize(
    "text", ['speed = "nothing"', "speed = 1", 'velocity = "gps.speed"', 'moving = "fast"']
)
def test_wrong_settings_are_refused(tmp_path: Path, text: str) -> None:
    config = tmp_path / "twin.toml"
    config.write_text(f"[questions]\n{text}\n")
    with pytest.raises(OptionError, match=r"\[questions\]"):
        QuestionsSettings.read(str(config))


def test_every_query_of_tsbs_is_there() -> None:
    found = [name for each in questions().values() if each.tsbs for name in each.tsbs.split(", ")]
    assert sorted(found) == sorted(TSBS)


def test_the_page_has_every_question_setting_and_column() -> None:
    page = PAGE.read_text()
    for name, each in questions().items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert each.about in row
        assert all(f"`{column}`" in row for column in each.columns), (name, each.columns)
        assert all(f"`{query}`" in row for query in each.tsbs.split(", ") if query)
    for name in set(QuestionsSettings.__struct_fields__) - {"units"}:
        assert f"| `{name}` |" in page
