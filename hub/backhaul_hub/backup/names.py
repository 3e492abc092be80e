"""The names in a backup: a backup is handed in from outside, so none of them is believed unseen.

`restore` opens what a manifest names, and writes `config/...` below the hub directory. So a name is taken
only where `backup` could have written it; and nothing in a backup is a link, or anything else than a file.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub.errors import BackupError

# Whatever an operator or an editor called a file, as long as that leads nowhere: `backup` takes it, too.
_PLAIN = r"(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f]{1,255}"
_DEVICE = DEVICE_ID.pattern.removeprefix(r"\A").removesuffix(r"\Z")
STREAM = r"[A-Za-z0-9_-]{1,255}"
_SERVER = rf"(?:servers/{_PLAIN}/)?"
FILE = re.compile(
    rf"""(?:
      hub\.db
    | config/{_PLAIN}\.toml
    | config/{_SERVER}(?:{_PLAIN}\.conf | tls/{_PLAIN})
    | config/creds/{_PLAIN}\.creds
    | config/keys/{_PLAIN}
    | config/devices/{_DEVICE}/{_PLAIN}
    | streams/{STREAM}\.tar\.s2
    | kv/{STREAM}\.json
    | artifacts/[0-9a-f]{{64}}
    )""",
    re.VERBOSE,
)


def require_plain_files(directory: Path) -> None:
    """See that a backup holds nothing but files and directories: a link leads out of it, a pipe waits for ever.

    Raises:
        BackupError: naming what is something else.
    """
    wrong: list[str] = []
    try:
        for place, directories, files in os.walk(directory, onerror=_raise):
            wrong += [
                f"{path} is no directory, but a link"
                for path in (f"{place}/{name}" for name in directories)
                if not stat.S_ISDIR(os.lstat(path).st_mode)
            ]
            wrong += [
                f"{path} is no file, but a link or a device"
                for path in (f"{place}/{name}" for name in files)
                if not stat.S_ISREG(os.lstat(path).st_mode)
            ]
    except OSError as error:
        raise BackupError(f"{error.filename or directory}: {error.strerror}") from error
    if wrong:
        raise BackupError(
            "\n  ".join(["the backup holds what no backup does:", *sorted(wrong)[:20]]),
            hint="copy the files themselves there, or take another backup",
        )


def _raise(error: OSError) -> None:
    raise error
