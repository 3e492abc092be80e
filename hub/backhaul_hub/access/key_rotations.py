"""Another key for a vehicle, over the air: the state of each rotation, and the next step. Pure.

    asked    the vehicle is asked for a key
    signed   it has made one, and the hub has signed a login for it
    written  it has written that login; its leaf is to connect anew
    done     its leaf has logged in with the new key, and the old one is revoked
    failed   the vehicle could not, and says why; the old key is as good as ever

Every state is stored before anybody hears of it, and whatever is said may be said again.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import astuple, dataclass, fields, replace
from typing import Literal, TypeAlias

from backhaul_codec.protocol.proof import is_user_key
from backhaul_codec.protocol.rotation import Wish, proves
from backhaul_codec.protocol.words import KeyWord
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry

State: TypeAlias = Literal["asked", "signed", "written", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Rotation:
    """The newest rotation of a device."""

    device: str
    id: str
    state: State
    asked_ns: int
    public_key: str = ""
    """The new one, once it is made."""
    old_key: str = ""
    """The one that it replaces."""
    changed_ns: int = 0
    """When it came to its state."""
    why: str = ""
    """It failed."""
    said: str = ""
    """The last state that was acted upon: told to the vehicle, or its leaf cut so that it dials."""

    @property
    def under_way(self) -> bool:
        """Whether something is still to come."""
        return self.state not in ("done", "failed")

    def wish(self, jwt: str) -> Wish:
        """Return the word for the vehicle; ``jwt``: for the new key, once there is one."""
        if not self.under_way:
            return Wish(self.id, done=True)
        return Wish(self.id, jwt=jwt if self.public_key else "")


def heard(
    rotation: Rotation | None, word: KeyWord, spent_keys: Container[str], now_ns: int
) -> Rotation | None:
    """Return where a rotation stands after a vehicle's word; None where that changes nothing.

    ``spent_keys``: public keys that are, or were, anybody's.
    """
    if rotation is None or word.id != rotation.id or not rotation.under_way:
        return None
    if word.state == "failed":
        return replace(
            rotation, state="failed", changed_ns=now_ns, why=word.why or "it does not say"
        )
    if word.state == "made":
        return _made(rotation, word, spent_keys, now_ns)
    if rotation.state == "signed":
        return replace(rotation, state="written", changed_ns=now_ns)
    return None


def _made(
    rotation: Rotation, word: KeyWord, spent_keys: Container[str], now_ns: int
) -> Rotation | None:
    if word.public_key == rotation.public_key:
        return None
    if not is_user_key(word.public_key) or not proves(
        word.proof, word.public_key, rotation.device, rotation.id
    ):
        why = "it sent a key without a proof that it holds it"
    elif word.public_key in spent_keys:
        why = "it sent a key that was used before"
    elif rotation.public_key:
        # Its file was lost on the way: the first key is nobody's.
        why = "it sent two keys"
    else:
        return replace(rotation, state="signed", public_key=word.public_key, changed_ns=now_ns)
    return replace(rotation, state="failed", changed_ns=now_ns, why=why)


def logged_in(rotation: Rotation | None, public_key: str, now_ns: int) -> Rotation | None:
    """Return the rotation as done, where a login with this key ends it; else None.

    Also where it counts as failed: that key is in use then, whatever the vehicle said.
    """
    if rotation is None or rotation.state == "done" or rotation.public_key != public_key:
        return None
    return replace(rotation, state="done", changed_ns=now_ns, why="")


def begin(rotation: Rotation) -> RowChange:
    """Return the statement that stores a new rotation, in the place of the device's last."""
    marks = ", ".join("?" for _ in fields(Rotation))
    return RowChange(f"INSERT OR REPLACE INTO rotation VALUES ({marks})", [astuple(rotation)])  # noqa: S608


def put(rotation: Rotation) -> RowChange:
    """Return the statement that stores where a rotation stands.

    Nothing where a newer one began, nor where this one is done: what was heard before comes later.
    """
    return RowChange(
        "UPDATE rotation SET state = ?, public_key = ?, changed_ns = ?, why = ?, said = ? "
        "WHERE device = ? AND id = ? AND state <> 'done'",
        [
            (
                rotation.state,
                rotation.public_key,
                rotation.changed_ns,
                rotation.why,
                rotation.said,
                rotation.device,
                rotation.id,
            )
        ],
    )


def put_said(rotation: Rotation) -> RowChange:
    """Return the statement that stores the hub's part of a rotation, and leaves the vehicle's alone."""
    return RowChange(
        "UPDATE rotation SET said = ? WHERE device = ? AND id = ?",
        [(rotation.said, rotation.device, rotation.id)],
    )


def drop(device: str) -> RowChange:
    """Return the statement that forgets a device's rotation."""
    return RowChange("DELETE FROM rotation WHERE device = ?", [(device,)])


async def rotations(registry: Registry) -> dict[str, Rotation]:
    """Return the newest rotation of each device that ever had one. Raises: RegistryError."""
    columns = ", ".join(each.name for each in fields(Rotation))
    rows = await registry.fetch(f"SELECT {columns} FROM rotation")  # noqa: S608 - constants
    return {row[0]: Rotation(*row) for row in rows}
