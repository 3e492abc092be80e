"""A vehicle that is enrolled by its command line."""

from __future__ import annotations

from typing import Any

from backhaul_codec.protocol.credentials import parse_credentials
from tests.support.rig.parts import DeviceRig, program, run_to_end


def of(device: str, report: dict[str, Any]) -> Any:
    return (each for each in report["devices"] if each["device"] == device)


def arguments(rig: DeviceRig, token: str) -> list[str]:
    directory = rig.agent_toml.parent
    return [
        program("backhaul-agent"), "enrol", token.strip(), "--dir", str(directory),
        "--state-dir", str(directory), "--port", str(rig.client_port), "--open",
    ]  # fmt: skip


async def enrol(rig: DeviceRig, token: str) -> str:
    return await run_to_end(arguments(rig, token))


def key_of(rig: DeviceRig) -> str:
    text = rig.agent_toml.with_name("device.creds").read_text()
    return parse_credentials(text).public_key


def rotation(report: dict[str, Any], device: str) -> dict[str, Any]:
    """Return where the newest rotation of a device stands; empty: it has had none."""
    found: dict[str, Any] = next(of(device, report))["rotation"] or {}
    return found
