"""Messages of a stream in their order, each without need of a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_codec.kinds import DICTIONARY
from backhaul_codec.wire.dictionaries import digest_of, plain, read_dictionary

if TYPE_CHECKING:
    from backhaul_codec.subjects import Uplink


class PlainReader:
    """Keeps the dictionaries that pass by, and unpacks messages against those of their device.

    For a reader that begins where its stream begins: a vehicle sends a dictionary before its use. All dictionaries
    stay in memory.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[bytes, bytes]] = {}

    def take(self, place: Uplink, message: bytes) -> bytes:
        """Return a message that needs no dictionary, and keep one that is a dictionary.

        Raises:
            CodecError: `dictionary` for one that did not pass by; as `plain` and `read_dictionary`.
        """
        if place.kind is DICTIONARY:
            self.keep(place.device, bytes.fromhex(place.key or ""), message)
            return message
        return plain(message, self._known.get(place.device, {}).get)

    def know(self, device: str, dictionary: bytes) -> None:
        """Keep a dictionary that did not pass by."""
        self._known.setdefault(device, {})[digest_of(dictionary)] = dictionary

    def keep(self, device: str, digest: bytes, message: bytes) -> None:
        """Keep a device's dictionary. Raises: CodecError, as `read_dictionary`."""
        self._known.setdefault(device, {})[digest] = read_dictionary(message, digest)
