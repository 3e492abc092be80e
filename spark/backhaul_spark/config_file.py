"""The jobs' TOML file: one for all of them, each takes its own sections."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from backhaul_codec.strict.toml import TomlError, read_toml
from backhaul_spark.errors import OptionError

# [fleet] is for the fleet-wide jobs, [places] for trips and fences, [questions] for `ask`, the others are the twin's.
SECTIONS = ("fleet", "places", "questions", "rules", "signals", "twin")


def read_config(path: str) -> dict[str, Any]:
    """Read the file; each section's owner checks its contents.

    Raises:
        OptionError: no such file, no TOML, or no section of any job.
    """
    try:
        values = read_toml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError("--config", path, f"a readable file ({error.strerror})") from error
    except (TomlError, UnicodeDecodeError) as error:
        raise OptionError("--config", path, f"TOML: {error}") from error
    refuse_unknown(values, SECTIONS, path)
    for name, section in values.items():
        if not isinstance(section, dict):
            raise OptionError(f"{path}: {name}", section, f"a section [{name}]")
    return values


def refuse_unknown(keys: Iterable[str], known: Collection[str], where: str) -> None:
    """Refuse a key that nobody reads: it is a slip of the pen. Raises: OptionError."""
    for key in keys:
        if key not in known:
            raise OptionError(where, key, f"one of {', '.join(sorted(known))}")
