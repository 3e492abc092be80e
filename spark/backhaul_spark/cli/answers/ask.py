"""`backhaul-spark ask [NAME]`: Answer a question about the fleet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import click

from backhaul_codec.state.point_text import shown
from backhaul_spark.cli import _options
from backhaul_spark.cli._twin_text import as_json_rows

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from backhaul_spark.questions.catalogue import Question
    from backhaul_spark.questions.settings import QuestionsSettings
    from backhaul_spark.questions.views import About

SHOWN_ROWS = 50


@click.command()
@_options.table_root
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--device", help="Only this vehicle.")
@click.option("--fleet", help="Only vehicles that say they are of this fleet.")
@click.option("--from", "start", help="ISO 8601 time, a whole minute; without an offset it is UTC.")
@click.option("--to", "end", help="ISO 8601 time, a whole minute, not included.")
@click.option(
    "--of",
    "source",
    type=click.Choice(["rollups", "points"]),
    default="rollups",
    show_default=True,
    help="Sums by minute, as new as the last run of rollup; or every reading.",
)
@click.option(
    "--with",
    "engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="Engine that computes the answer; both give the same.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    envvar="BACKHAUL_TWIN_CONFIG",
    help="TOML file whose table [questions] says which series are speed, load, fuel, and the limits.",
)
@click.option("--sql", is_flag=True, help="Print the texts of the views and of the question.")
@_options.as_json
def ask(
    table_root: str,
    name: str | None,
    device: str | None,
    fleet: str | None,
    start: str | None,
    end: str | None,
    source: Literal["rollups", "points"],
    engine: str,
    config: str | None,
    sql: bool,
    as_json: bool,
) -> None:
    """Answer a question about the fleet by the name NAME; without a name list all of them.

    A question is a text in SQL over views of the tables: docs/questions.md says what each answers.
    """
    from backhaul_runtime.clock import SYSTEM_CLOCK
    from backhaul_spark.questions.catalogue import question, questions
    from backhaul_spark.questions.settings import QuestionsSettings
    from backhaul_spark.questions.views import About, Views

    if name is None:
        for each in questions().values():
            print(f"{each.name:24} {each.about}")
        return
    wanted, settings = question(name), QuestionsSettings.read(config)
    asked = About(_minute_ns("--from", start), _minute_ns("--to", end), device, fleet, source)
    now_ns = SYSTEM_CLOCK.now_ns()
    if sql:
        for view, text in Views(settings, asked, now_ns).of(wanted.reads).items():
            print(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS\n{text};\n")
        print(f"{wanted.sql};")
        return
    rows = _answer(table_root, engine, wanted, settings, asked, now_ns)
    if as_json:
        print(json.dumps({"question": wanted.name, "rows": as_json_rows(rows.to_pylist())}))
        return
    _print(wanted, rows)


def _answer(
    root: str,
    engine: str,
    question: Question,
    settings: QuestionsSettings,
    asked: About,
    now_ns: int,
) -> pa.Table:
    from backhaul_spark.questions import ask as asking

    if engine == "duckdb":
        with asking.InDuckDB(root) as duck:
            return asking.ask(duck, question, settings, asked, now_ns)
    from backhaul_spark.session import spark_session

    spark = spark_session("backhaul-ask")
    try:
        with asking.InSpark(spark, root) as where:
            return asking.ask(where, question, settings, asked, now_ns)
    finally:
        spark.stop()


def _minute_ns(option: str, text: str | None) -> int | None:
    from backhaul_spark.errors import OptionError
    from backhaul_spark.query.history import parse_time

    moment = parse_time(option, text)
    if moment is None:
        return None
    if moment.second or moment.microsecond:
        raise OptionError(option, text, "a whole minute")
    return round(moment.timestamp()) * 1_000_000_000


def _print(question: Question, rows: pa.Table) -> None:
    print(question.about)
    lines = [[_text(row[name]) for name in rows.column_names] for row in rows.to_pylist()]
    table = [rows.column_names, *lines[:SHOWN_ROWS]]
    widths = [max(len(line[at]) for line in table) for at in range(len(rows.column_names))]
    for line in table:
        print(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        )
    if len(lines) > SHOWN_ROWS:
        print(f"... {len(lines) - SHOWN_ROWS:,} more (--json prints all)")
    if not lines:
        print("none; [questions] of --config says which series are asked for (docs/questions.md)")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return shown(value.isoformat() if hasattr(value, "isoformat") else str(value))
