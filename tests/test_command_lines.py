"""Every subcommand of the three command lines: it explains itself, and ends without a traceback."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import click
import pytest
from click.testing import CliRunner

import backhaul_agent.cli.main
import backhaul_hub.cli.main
import backhaul_spark.cli.main
from backhaul_codec.programs.command_line import _Harmless, harmless, install_hint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backhaul_codec.programs.command_line import Subcommands

GROUPS: dict[str, Subcommands] = {
    "backhaul-agent": backhaul_agent.cli.main.cli,
    "backhaul-hub": backhaul_hub.cli.main.cli,
    "backhaul-spark": backhaul_spark.cli.main.cli,
}
EXTRAS = [
    "cryptography",
    "deltalake",
    "google",
    "jinja2",
    "matplotlib",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
    "rich",
]
# Starts a program as its entry point does, with the extras taken away.
WITHOUT_EXTRAS = f"""\
import importlib, importlib.abc, sys
class Lacks(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Lacks())
program = sys.argv[1]
"""
PLAIN = "import importlib, sys\nprogram = sys.argv[1]\n"
START = """\
del sys.argv[0]
importlib.import_module(program.replace("-", "_") + ".cli.main").main()
"""
# Of each command line the help, and of each subcommand below it, in one process.
WALK = """\
import click, io, contextlib, json
cli = importlib.import_module(program.replace("-", "_") + ".cli.main").cli
found = {}
def look(words):
    texts = {}
    for flag in ("-h", "--help", "--version"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = cli.main([*words, flag], prog_name=program, standalone_mode=False)
        texts[flag] = out.getvalue() if not status else f"status {status}"
    found[" ".join(words)] = texts
    context = click.Context(cli, info_name=program)
    command = cli
    for word in words:
        command = command.get_command(context, word)
        context = click.Context(command, parent=context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            look([*words, name])
look([])
print(json.dumps(found))
"""


def run(source: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", source, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def commands(
    command: click.Command, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command at the ends of the tree, and how it is called."""
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*words, name))


@pytest.mark.slow
@pytest.mark.parametrize("program", GROUPS)
def test_every_command_explains_itself_without_any_extra(program: str) -> None:
    walked = run(WITHOUT_EXTRAS + WALK, program)
    assert walked.returncode == 0, walked.stderr
    version = importlib.metadata.version("backhaul")
    for words, texts in json.loads(walked.stdout).items():
        usage, _, rest = texts["-h"].partition("\n\n")
        assert usage.startswith(f"Usage: {program} {words}".rstrip()), words
        sentence = rest.strip().partition("\n")[0].strip()
        assert re.match(r"[A-Z][a-z]+ ", sentence), f"{program} {words} does not say what it does"
        assert "-h, --help" in texts["-h"]
        assert texts["--help"] == texts["-h"]
        assert texts["--version"] == f"{program}, version {version}\n"


@pytest.mark.parametrize("program", GROUPS)
def test_each_module_of_a_command_line_is_a_subcommand_by_its_first_line(program: str) -> None:
    line = importlib.import_module(f"{program.replace('-', '_')}.cli")
    rooms = Path(line.__file__ or "").parent.glob("*/__init__.py")
    modules = {file.stem for room in rooms for file in room.parent.glob("[a-z]*.py")}
    assert len(GROUPS[program].summaries) == len(modules) >= 14


@pytest.mark.parametrize("program", GROUPS)
def test_every_option_and_summary_says_something(program: str) -> None:
    assert all(GROUPS[program].summaries.values())
    for words, command in commands(GROUPS[program]):
        for each in command.params:
            if isinstance(each, click.Option):
                assert each.help, f"{program} {' '.join(words)} {each.opts[0]} is not explained"


@pytest.mark.slow
@pytest.mark.parametrize("program", GROUPS)
def test_a_wrong_option_of_any_command_is_told_on_standard_error(program: str) -> None:
    """All in one process, as starting 60 would take a minute."""
    source = PLAIN + (
        "import contextlib, io, json\n"
        'main = importlib.import_module(program.replace("-", "_") + ".cli.main").main\n'
        "found = {}\n"
        "for words in map(str.split, sys.argv[2:]):\n"
        '    sys.argv = [program, *words, "--no-such-option"]\n'
        "    out, err = io.StringIO(), io.StringIO()\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n"
        "        try:\n"
        "            main()\n"
        "        except SystemExit as end:\n"
        '            found[" ".join(words)] = [end.code, out.getvalue(), err.getvalue()]\n'
        "print(json.dumps(found))\n"
    )
    called = [" ".join(words) for words, _ in commands(GROUPS[program])]
    done = run(source, program, *called)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == called
    for words, (status, out, err) in found.items():
        assert (status, out) == (2, ""), words
        assert "--no-such-option" in err
        assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "module", "extra"),
    [
        (("backhaul-hub", "init", "DIR/hub", "--tls-name", "hub"), "cryptography", "hub"),
        (("backhaul-spark", "rollup", "--table-root", "DIR"), "", "spark"),
        (("backhaul-spark", "history", "--table-root", "DIR"), "", "spark"),
        (("backhaul-agent", "replay", "DIR/trip.parquet", "--map", "DIR/trip.toml"), "", "replay"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_missing_extra_is_named_with_what_brings_it(
    words: tuple[str, ...], module: str, extra: str, tmp_path: Path
) -> None:
    (tmp_path / "trip.parquet").write_bytes(b"PAR1")
    (tmp_path / "trip.toml").write_text(
        '[time]\ncolumn = "t"\n[[series]]\ncolumn = "b"\nnode = "a"\ntype = "b"\n'
    )
    program, *rest = (word.replace("DIR", str(tmp_path)) for word in words)
    if rest[0] == "history":
        rest += ["--device", "VID-001", "--series", "a.b"]
    done = run(WITHOUT_EXTRAS + START, program, *rest)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert module in done.stderr
    assert f"pip install '.[{extra}]'" in done.stderr


def test_what_the_base_lacks_is_brought_without_an_extra() -> None:
    assert install_hint("backhaul-hub", "msgspec").endswith("pip install .")


@pytest.mark.parametrize("program", GROUPS)
def test_ctrl_c_is_one_line_and_status_130(program: str) -> None:
    """Raised where a subcommand would be at work: at the lookup of it."""
    source = PLAIN + (
        "import signal\nfrom backhaul_codec.programs import command_line\n"
        "def stopped(*_): signal.raise_signal(signal.SIGINT)\n"
        "command_line.Subcommands.get_command = stopped\n"
    )
    done = run(source + START, program, next(iter(GROUPS[program].summaries)))
    assert done.returncode == 130
    assert done.stderr.strip() == f"{program}: interrupted"


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").mkdir()
    source = PLAIN + START
    done = run(source, "backhaul-agent", "status", "--config", str(tmp_path / "agent.toml" / "x"))
    assert done.returncode == 1
    assert done.stderr.startswith("backhaul-agent: ")
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_ends_a_command_quietly() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PLAIN + START, "backhaul-hub", "-h"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    "text",
    ["\x1b[2J\x1b[H", "\x1b]0;title\x07", "\r", "\x9b31m", "\u202egnp.exe", "\ud800", "\x00"],
)
def test_no_text_reaches_a_terminal_as_an_order(text: str) -> None:
    assert harmless(text).isprintable()
    source = PLAIN + (
        "from backhaul_codec.programs import command_line\nimport click\n"
        "@click.command()\ndef odd():\n"
        f"    print({text!r})\n    click.echo({text!r})\n    raise ValueError({text!r})\n"
        "command_line.Subcommands.get_command = lambda *_: odd\n"
        "del sys.argv[1]\n"
        "command_line.run(importlib.import_module('backhaul_hub.cli.main').cli, program, ValueError)\n"
    )
    done = run(source, "backhaul-hub", "odd")
    assert done.returncode == 1
    # click leaves colours out where there is no terminal.
    assert done.stdout.startswith(harmless(text) + "\n")
    assert harmless(done.stdout) == done.stdout
    assert done.stderr == f"backhaul-hub: {harmless(text)}\n"


@pytest.mark.parametrize("err", [False, True], ids=["stdout", "stderr"])
def test_what_a_command_prints_orders_no_terminal_about_on_either_stream(*, err: bool) -> None:
    """Also where somebody calls the group and not the program, as tests and shells in Python do."""

    @click.command()
    def odd() -> None:
        click.echo("a\x07", err=err)
        print("b\x9b31m", file=sys.stderr if err else sys.stdout)

    for group in GROUPS.values():
        with mock.patch.object(type(group), "get_command", return_value=odd):
            said = CliRunner().invoke(group, ["odd"], catch_exceptions=False)
        stream = said.stderr if err else said.stdout
        assert stream == "a\\u0007\nb\\u009b31m\n"
        assert not isinstance(sys.stdout, _Harmless)


def test_json_stays_json() -> None:
    text = json.dumps({"said": "\x9b31m\x7f\u202e"}, ensure_ascii=False)
    assert json.loads(harmless(text)) == json.loads(text)


def test_what_a_terminal_shows_stays_as_it_is() -> None:
    text = "83 °C\tüber 日本\nnext line"
    assert harmless(text) == text
