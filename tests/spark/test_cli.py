"""The command line: wrong options answer at once, without Spark."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from backhaul_spark.cli._options import HubPlace, tell
from backhaul_spark.cli._service import seconds
from backhaul_spark.cli.jobs.ingest import Totals
from backhaul_spark.cli.main import cli
from backhaul_spark.errors import JavaMissingError, OptionError, TableMissingError, UnreachableError
from backhaul_spark.ingest.batch import BatchOutcome
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    code = (
        "import sys, backhaul_spark.cli.main; "
        "print([m for m in ('pyspark', 'pyarrow', 'numpy', 'matplotlib', 'deltalake') "
        "if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=240
    )
    assert found.stdout.decode().strip() == "[]"


@pytest.mark.parametrize(
    "command",
    [
        "ingest",
        "rollup",
        "history",
        "detect",
        "completeness",
        "alerts",
        "twins",
        "restated",
        "maintain",
    ],
)
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(cli, [command, "--help"])
    assert result.exit_code == 0
    assert "--table-root" in result.output


def test_ingest_wants_to_know_when_and_from_where(tmp_path: Path) -> None:
    common = ["ingest", "--table-root", str(tmp_path)]
    assert "--once or --every" in CliRunner().invoke(cli, common).output
    assert "--hub-dir or --servers" in CliRunner().invoke(cli, [*common, "--once"]).output


def test_a_hub_that_is_not_there_is_known_before_spark_starts(tmp_path: Path) -> None:
    servers = f"nats://127.0.0.1:{free_port()}"
    arguments = ["ingest", "--table-root", str(tmp_path), "--servers", servers, "--once"]
    result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, UnreachableError)
    assert "pyspark" not in str(result.exception)


def test_a_hub_directory_names_the_address_and_keeps_the_login(tmp_path: Path) -> None:
    file = tmp_path / "hub.toml"
    with pytest.raises(OptionError, match=r"hub\.toml in it"):
        HubPlace(str(tmp_path)).source()
    file.write_text('[nats]\nurl = "nats://hub:4222"\n[nats.spark]\nuser = "u"\npassword = "p"\n')
    options = HubPlace(str(tmp_path)).source()
    assert options == {
        "servers": "nats://hub:4222",
        "credentials": str(file),
        "streams": "UP_*",
    }
    file.write_text('[nats]\nurl = "tls://hub:4222"\nca = "tls/ca.pem"\n')
    options = HubPlace(str(tmp_path)).source()
    assert (options["servers"], options["tls_ca"]) == ("tls://hub:4222", f"{tmp_path}/tls/ca.pem")
    for broken in ("[nats]", "nats = 1", "[["):
        file.write_text(broken)
        with pytest.raises(OptionError):
            HubPlace(str(tmp_path)).source()


def test_no_java_is_told_with_the_package_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backhaul_spark.session import spark_session

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissingError, match="no java on PATH") as found:
        spark_session()
    assert "apt install openjdk-17-jre-headless" in found.value.hint
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match="has no bin/java"):
        spark_session()


@pytest.mark.parametrize(
    ("words", "maker"),
    [
        (("alerts",), "twin"),
        (("twins",), "twin"),
        (("restated", "--since", "2026-01-01"), "rollup"),
        (("history", "--device", "VID", "--series", "a.b", "--resolution", "raw"), "ingest"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_table_that_is_missing_is_told_with_the_command_that_makes_it(
    words: tuple[str, ...], maker: str, tmp_path: Path
) -> None:
    found = CliRunner().invoke(cli, [*words, "--table-root", str(tmp_path)])
    assert isinstance(found.exception, TableMissingError)
    assert found.exception.hint == f"`backhaul-spark {maker}` makes it"


def test_durations() -> None:
    assert [seconds(text, "--every") for text in ("5s", "500ms", "2m", "3")] == [
        5.0,
        0.5,
        120.0,
        3.0,
    ]
    for text in ("", "soon", "-1s", "0", "5h"):
        with pytest.raises(click.BadParameter):
            seconds(text, "--every")


def test_totals_tell_what_is_unusual(capsys: pytest.CaptureFixture[str]) -> None:
    totals = Totals(tell)
    totals.add(BatchOutcome(ingest=2, batch=0, messages=3, points=600))
    totals.add(BatchOutcome(ingest=3, batch=1, messages=1, points=2, repeated=4, gaps=1))
    _, err = capsys.readouterr()
    assert err.splitlines()[0] == "ingest 2: 600 points from 3 messages"
    assert str(totals) == (
        "602 points from 4 messages; 4 repeated messages left out; "
        "1 gaps in the streams (table source_gaps)"
    )


def test_the_twin_says_what_it_lacks_before_spark_starts(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    words = ["twin", "--table-root", str(tmp_path / "tables")]
    with pytest.raises(OptionError, match=r"creds/twin.creds in it, which `backhaul-hub up` makes"):
        CliRunner().invoke(cli, [*words, "--hub-dir", str(hub)], catch_exceptions=False)
    said = CliRunner().invoke(cli, [*words, "--servers", "nats://127.0.0.1:1"])
    assert "say --env, or --hub-dir" in said.output
    (hub / "creds").mkdir()
    (hub / "creds" / "twin.creds").write_text("")
    (hub / "hub.toml").write_text('[nats]\nurl = "nats://127.0.0.1:1"\n[twin]\nenv = 3\n')
    with pytest.raises(OptionError, match="a text env"):
        CliRunner().invoke(cli, [*words, "--hub-dir", str(hub)], catch_exceptions=False)
    config = tmp_path / "twin.toml"
    config.write_text("[rules.heat]\n")
    with pytest.raises(OptionError, match="one of battery, silence, temperature"):
        CliRunner().invoke(
            cli, [*words, "--hub-dir", str(hub), "--config", str(config)], catch_exceptions=False
        )
