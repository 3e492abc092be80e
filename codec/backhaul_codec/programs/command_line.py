"""Shared parts of the three command lines: a subcommand is found, runs, and ends.

A subcommand is imported when it is called. So the list of all needs none of them, and `run` on a
vehicle does not pay for what `replay` needs.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

import click

INTERRUPTED = 130  # what shells say of a command that Ctrl-C ended
HELP = {"help_option_names": ["-h", "--help"]}

deletions_option = click.option(
    "--delete",
    "deletions",
    metavar="NODE.TYPE[.KEY]",
    multiple=True,
    help="Delete this point. Writing it again puts it back.",
)

# Which extra of the distribution brings what each program may lack.
_EXTRAS = {"backhaul-agent": "replay", "backhaul-hub": "hub", "backhaul-spark": "spark"}
_OF_AN_EXTRA = (
    *("cryptography", "deltalake", "google", "jinja2", "matplotlib", "numpy"),
    *("pandas", "pyarrow", "pyspark", "rich"),
)
# Line breaks and tabs are ours. Anything else that moves the cursor, turns text around or cannot be
# written at all comes from somebody who may mean harm.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Subcommands(click.Group):
    """Finds subcommands by the first lines of their modules, which are "`PROGRAM NAME ...`: Summary.".

    Args:
        program: as it is called on the command line.
        rooms: the packages with the modules, in the order of `--help`.
        lacking: names of subcommands that an installation may be without.
    """

    def __init__(
        self,
        *args: Any,
        program: str,
        rooms: Iterable[str],
        lacking: Iterable[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(*args, context_settings=HELP, **options)
        self.summaries: dict[str, str] = {}
        self._modules: dict[str, str] = {}
        self._lacking = lacking
        first_line = re.compile(rf'"""`{program} ([a-z-]+).*`: (.+?)(?:""")?\r?\n')
        for room in rooms:
            for module in pkgutil.iter_modules(importlib.import_module(room).__path__):
                # Also out of the archive that spark-submit takes to a cluster.
                source = pkgutil.get_data(room, f"{module.name}.py") or b""
                if found := first_line.match(source.decode()):
                    name, self.summaries[found[1]] = found.groups()
                    self._modules[name] = f"{room}.{module.name}"

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all that are installed."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in self._modules:
            if cmd_name not in self._lacking:
                return None
            program = ctx.find_root().info_name or ""
            hint = f"pip install '.[{_EXTRAS.get(program, '')}]'"
            raise click.ClickException(
                f"{cmd_name} is not part of this installation; in a checkout of backhaul: {hint}"
            )
        module = importlib.import_module(self._modules[cmd_name])
        found = (each for each in vars(module).values() if isinstance(each, click.Command))
        return _with_version(next(each for each in found if each.name == cmd_name))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen subcommand; its words order no terminal about."""
        before = sys.stdout, sys.stderr
        _guard()
        try:
            return super().invoke(ctx)
        finally:
            sys.stdout, sys.stderr = before

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


def run(group: click.Group, program: str, *refused: type[Exception]) -> NoReturn:
    """Run a command line and end the process.

    Exit status: that of the subcommand, 1 after an error or what that says itself, 2 after a wrong option, 130 after Ctrl-C.
    Each error is a line or two on standard error; only a fault of the program has a traceback.

    Args:
        group: the subcommands.
        program: as it is called on the command line.
        refused: base classes of the errors that the program raises on purpose; they may have a `hint`,
            and an `exit_status`.
    """
    _guard()
    try:
        # The own name: `python -m` and wrappers would give another.
        status = group.main(prog_name=program, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):
            _say(program, "nothing was done: no answer was given")
            sys.exit(1)
        _say(program, "interrupted")
        sys.exit(INTERRUPTED)
    except refused as error:
        _say(program, str(error), getattr(error, "hint", ""))
        sys.exit(getattr(error, "exit_status", 1))
    except ModuleNotFoundError as error:
        wanted = (error.name or "").partition(".")[0]
        if wanted.startswith("backhaul"):
            raise
        _say(program, f"{wanted or error} is not installed", install_hint(program, wanted))
        sys.exit(1)
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        _say(program, f"{about}{error.strerror or error}")
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def install_hint(program: str, module: str) -> str:
    """Return the command that brings a module which is missing, "" for one of the base."""
    what = f"'.[{_EXTRAS[program]}]'" if module in _OF_AN_EXTRA else "."
    return f"in a checkout of backhaul: pip install {what}"


def harmless(text: str) -> str:
    """Return text with everything that a terminal would obey written as JSON writes it."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def own_terminal() -> Any:
    """Return standard error for lines that move the cursor on purpose, without text of others."""
    return sys.stderr.stream if isinstance(sys.stderr, _Harmless) else sys.stderr


def _guard() -> None:
    if not isinstance(sys.stdout, _Harmless):
        sys.stdout = _Harmless(sys.stdout)
    if not isinstance(sys.stderr, _Harmless):
        sys.stderr = _Harmless(sys.stderr)


def _with_version(command: click.Command) -> click.Command:
    """Give a subcommand, and all below it, the option that the whole has."""
    if not any("--version" in each.opts for each in command.params):
        click.version_option(package_name="backhaul")(command)
        for each in command.commands.values() if isinstance(command, click.Group) else ():
            _with_version(each)
    return command


def _say(program: str, problem: str, hint: str = "") -> None:
    lines = [f"{program}: {problem}"]
    if hint and hint not in problem:
        lines.append(f"  {hint}")
    click.echo(harmless("\n".join(lines)), err=True)


class _Harmless:
    """A stream without anything that a terminal obeys, wherever the text comes from.

    The last line of defence: text of vehicles goes through `point_text.shown` before, which also keeps
    line breaks out of a line. Bytes are left alone.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text; return its length."""
        self.stream.write(harmless(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write texts, one after another."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
