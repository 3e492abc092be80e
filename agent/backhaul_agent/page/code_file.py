"""Where the page is and its code, in a file that only the agent's user and root can read: `backhaul-agent page` shows it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from backhaul_agent.errors import HintedError
from backhaul_agent.files import write_whole

CODE_FILE = "page.json"
"""Beside the ledger."""


class PageError(HintedError):
    """The page is nowhere, or its code cannot be read."""


class PageCode(msgspec.Struct, frozen=True):
    """``listen``: HOST:PORT; ``code``: as people type it."""

    listen: str
    code: str


def write_code(ledger: Path, said: PageCode) -> None:
    """Write the file beside a ledger. Raises: OSError."""
    write_whole(ledger.with_name(CODE_FILE), msgspec.json.encode(said), mode=0o600)


def remove_code(ledger: Path) -> None:
    """Take the file away: its code opens nothing any more. Raises: OSError."""
    ledger.with_name(CODE_FILE).unlink(missing_ok=True)


def read_code(ledger: Path) -> PageCode:
    """Return the contents of the file beside a ledger.

    Raises:
        PageError: there is none, or it is not for us to read.
    """
    path = ledger.with_name(CODE_FILE)
    try:
        return msgspec.json.decode(path.read_bytes(), type=PageCode)
    except FileNotFoundError:
        hint = "say [page] listen in agent.toml, and start the agent"
        raise PageError("no agent here serves a page", hint=hint) from None
    except (OSError, msgspec.DecodeError) as error:
        raise PageError(f"{path} cannot be read: {error}", hint="ask as root") from error
