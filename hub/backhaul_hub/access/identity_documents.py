"""The identity documents of a hub's devices: `devices/<VID>/identity.json`.

What a vehicle is told when it is enrolled, and told again whenever its nodes or its key change. A
seed stands in one only where the hub has made the key: `add-device`.
"""

from __future__ import annotations

from pathlib import Path

from backhaul_codec.protocol.identity import (
    Identity,
    IdentityError,
    LinkCapacity,
    decode_identity,
    encode_identity,
)
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.access.logins import vehicle_jwt
from backhaul_hub.config import HubConfig
from backhaul_hub.device import Device
from backhaul_hub.errors import ConfigError
from backhaul_hub.lane_names import DOWN
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.private_files import private_directory, write_private
from backhaul_hub.servers import is_leaf_url, urls
from backhaul_hub.tls.files import ca_text

IDENTITY_FILE = "identity.json"


class Documents:
    """Makes documents, and keeps the newest of each device.

    Args:
        config: says where vehicles reach this hub.
    """

    def __init__(self, directory: Path, config: HubConfig, keys: HubKeys) -> None:
        self._directory = directory
        self._config = config
        self._keys = keys

    def path(self, device: str) -> Path:
        """Return where a device's document is."""
        return self._directory / "devices" / device / IDENTITY_FILE

    def leaf_urls(self) -> tuple[str, ...]:
        """Return where vehicles reach this hub. Raises: ConfigError: one is no leaf address."""
        return tuple(map(_leaf_url, urls(self._config.fleet.leaf_url)))

    def ca(self) -> str:
        """Return the certificates that this hub is known by; empty: those of the system."""
        return ca_text(self._directory)

    def make(self, device: Device, link: LinkCapacity, *, now_s: int, seed: str = "") -> Identity:
        """Return the document of a device.

        Args:
            device: as hub.db has it, or will.
            link: what its link is like.
            now_s: since the Unix epoch.
            seed: of its key, where the hub has made that.

        Raises:
            ConfigError: fleet.leaf_url is no address that a leaf could dial.
        """
        return Identity(
            device=device.id,
            token=device.token,
            leaf_urls=self.leaf_urls(),
            ca=self.ca(),
            jwt=vehicle_jwt(self._keys, device, now_s=now_s),
            seed=seed,
            down_stream=DOWN,
            nodes=device.nodes,
            link=link,
        )

    def renew(self, device: Device, *, now_s: int) -> Identity:
        """Return a device's document as it is to be now: its key or its nodes are others.

        Raises:
            ConfigError: the document that is there cannot be read.
        """
        before = self.read(device.id)
        same_key = body_of(before.jwt).get("sub") == device.public_key
        return self.make(device, before.link, now_s=now_s, seed=before.seed if same_key else "")

    def read(self, device: str) -> Identity:
        """Return a device's document. Raises: ConfigError: there is none, or it is damaged."""
        path = self.path(device)
        try:
            return decode_identity(path.read_bytes())
        except (IdentityError, OSError) as error:
            raise ConfigError(
                f"{path}: {error}", hint="put it back from a backup, or enrol the device anew"
            ) from error

    def write(self, identity: Identity) -> Path:
        """Write a device's document and return its place.

        Raises:
            ConfigError: it could not be read.
            OSError: it cannot be written.
        """
        try:
            text = encode_identity(identity)
        except IdentityError as error:
            raise ConfigError(f"no identity document can be made of it: {error}") from error
        path = self.path(identity.device)
        private_directory(path.parent)
        write_private(path, text)
        return path

    def remove(self, device: str) -> None:
        """Remove a device's document, with the seed that may be in it. Raises: OSError."""
        self.path(device).unlink(missing_ok=True)


def _leaf_url(url: str) -> str:
    if not is_leaf_url(url):
        raise ConfigError(
            f"fleet.leaf_url {url!r} is no leaf address", hint="nats-leaf://hub.example.org:7422"
        )
    return url
