"""Which machine this is, so that the hub notices two with one identity.

The commonest mistake in the field is a disk image that was copied to a second vehicle with all that is on it. So
none of what is on the disk is enough: a machine is told by the operating system's machine-id, by the board's
serial number where the kernel has one (Raspberry Pi and others), and by where its ledger is, which tells two
agents on one machine apart. Hashed, never as it stands: machine-id(5) is not to be shown to others. What all
copies have in common, the start of the machine and of the agent tell apart.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backhaul_agent.files import write_whole

_IDS = ("etc/machine-id", "var/lib/dbus/machine-id")
# Not under /proc, which systemd hides from the agent (ProcSubset=pid).
_SERIALS = ("sys/firmware/devicetree/base/serial-number",)
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
_KEY = b"backhaul machine"
_MACHINE_BYTES, _START_BYTES = 8, 4


@dataclass(frozen=True, slots=True)
class Machine:
    """The names of this machine, its start and the agent's at the hub: hexadecimal digits."""

    machine: str
    boot: str
    run: str


def identify(
    ledger: Path, boot: str, random_u32: Callable[[], int], root: Path = Path("/")
) -> Machine:
    """Return this machine's names.

    Where the machine has no id, one is drawn and kept beside the ledger; where that cannot be kept, it is
    another at the next start.

    Args:
        ledger: where the agent's is.
        boot: the kernel's name for this start of the machine, or what stands for it.
        random_u32: draws 32 bits.
        root: of the file system that says what machine this is.
    """
    parts = [_first(root, _SERIALS), _machine_id(root)]
    if not any(parts):
        parts.append(_drawn(ledger.with_name(ledger.name + ".machine"), random_u32))
    machine = _hash("\0".join([*parts, str(ledger.absolute())]), _MACHINE_BYTES)
    return Machine(machine, _hash(boot, _START_BYTES), f"{random_u32():08x}")


def _machine_id(root: Path) -> str:
    # Before the first start is over it reads "uninitialized".
    found = _MACHINE_ID.fullmatch(_first(root, _IDS))
    return found[0] if found else ""


def _first(root: Path, names: tuple[str, ...]) -> str:
    """Return the contents of the first of these files that has any."""
    for name in names:
        try:
            text = (root / name).read_bytes().decode(errors="replace").strip("\0 \n")
        except OSError:
            continue
        if text:
            return text
    return ""


def _drawn(path: Path, random_u32: Callable[[], int]) -> str:
    try:
        kept = path.read_text()
        if _MACHINE_ID.fullmatch(kept):
            return kept
    except (OSError, ValueError):
        pass
    fresh = "".join(f"{random_u32():08x}" for _ in range(4))
    try:
        write_whole(path, fresh.encode(), mode=0o600)
    except OSError:
        return fresh
    return fresh


def _hash(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size, key=_KEY).hexdigest()
