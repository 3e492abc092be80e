"""From a token to this vehicle's identity: every step leaves the directory so that the next run goes on.

1. What the hub will say is tried against the files that are there: a token is not used up in vain.
2. The key that asks is written to `enrolment.json`.
3. The hub is asked; its answer and the key become an identity document, which the caller makes files of.
4. `done` takes the key out of `enrolment.json` again: it is in device.creds now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from backhaul_agent.enrol.request import Attempt, ask, key_for, new_key, requester, write_attempt
from backhaul_agent.enrol.temporary_leaf import asking, temporary_leaf
from backhaul_agent.enrol.vehicle_files import (
    ATTEMPT,
    DEVICE_CREDS,
    Directory,
    File,
    Wishes,
    files_of,
    make_state_directories,
)
from backhaul_codec.protocol.credentials import Credentials
from backhaul_codec.protocol.enrolment import Token
from backhaul_codec.protocol.identity import Identity
from backhaul_runtime.clock import Clock

# Of the server that asks; removed with it.
_ASKING = "enrolling"


def begin(token: Token, target: Directory, wishes: Wishes) -> Credentials:
    """Return the key to ask with, kept on disk from now on.

    Raises:
        VehicleFilesError: this is no place for what the token would bring.
        EnrolmentFailedError: the token was used here, and its key is lost.
    """
    found = target.read()
    key = key_for(token, found.get(ATTEMPT), found.get(DEVICE_CREDS))
    expected = Identity(
        device=token.device, token=token.id, leaf_urls=token.leaf_urls, ca=token.ca,
        jwt=token.jwt, seed=token.seed,
    )  # fmt: skip
    files = files_of(expected, wishes, target.path, found, new_key)
    make_state_directories(files, target.path)
    if f'"{token.id}"' not in found.get(ATTEMPT, ""):
        _write(target, Attempt(token=token.id, seed=key.seed))
    return key


async def ask_hub(
    token: Token,
    key: Credentials,
    directory: Path,
    clock: Clock,
    *,
    wait_s: float,
    report: Callable[[str], None],
) -> Identity:
    """Ask over a leaf server of our own; return the answer with our key in it.

    Raises:
        EnrolmentFailedError: the hub refuses, or did not answer within ``wait_s`` seconds.
    """
    async with (
        temporary_leaf(token, directory / _ASKING) as leaf,
        asking(leaf, token) as client,
    ):
        identity = await ask(
            token, key, requester(client), clock,
            wait_s=wait_s, complaints=leaf.complaints, report=report,
        )  # fmt: skip
    return msgspec.structs.replace(identity, seed=key.seed)


def done(token: Token, target: Directory) -> None:
    """Take note that all files are written. Raises: VehicleFilesError."""
    _write(target, Attempt(token=token.id))


def _write(target: Directory, attempt: Attempt) -> None:
    target.write([File(ATTEMPT, write_attempt(attempt), 0o600, None)])
