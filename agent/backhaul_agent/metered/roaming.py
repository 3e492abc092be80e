"""Whether the vehicle is abroad, or on a dear interface: as a file says that a modem manager writes. Pure.

The file has `key=value` lines, or is one JSON object. Read are ``interface`` (the one in use),
``mcc`` (the country of the network, three digits), or ``mccmnc`` or ``operator``, which begin with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

FILE_BYTES_MAX = 4096
_LINE = re.compile(r"^\s*(\w+)\s*[=:]\s*\"?([^\"\r\n]*?)\"?\s*$", re.MULTILINE)
_MCC = re.compile(r"[0-9]{3}")


@dataclass(frozen=True, slots=True)
class Network:
    """The network in use; an empty name: the file does not say."""

    interface: str = ""
    mcc: str = ""


def read_network(text: str) -> Network:
    """Return the network that a file names. Raises: ValueError: neither interface nor country."""
    if text.lstrip().startswith("{"):
        try:
            said = {
                name.lower(): str(value)
                for name, value in msgspec.json.decode(text, type=dict[str, object]).items()
            }
        except msgspec.DecodeError as error:
            raise ValueError(f"no JSON object: {error}") from None
    else:
        said = {name.lower(): value for name, value in _LINE.findall(text)}
    country = next((said[key] for key in ("mcc", "mccmnc", "operator") if said.get(key)), "")
    found = _MCC.match(country)
    network = Network(said.get("interface", ""), found[0] if found else "")
    if not (network.interface or network.mcc):
        raise ValueError("it names neither interface nor mcc")
    return network


def is_roaming(network: Network, interfaces: Collection[str], home_mcc: Collection[str]) -> bool:
    """Return whether this network counts as roaming: the interface is listed, or the country is not."""
    abroad = bool(home_mcc and network.mcc) and network.mcc not in home_mcc
    return network.interface in interfaces or abroad
