"""Give messages back that were packed against a dictionary, as messages that need none. Executor side.

The hub keeps each vehicle's dictionaries in the stream DICT, and confirms one to its vehicle only after that;
so a reader of UP finds a dictionary there before the first message that refers to it. Where it does not (a store
that was lost), the message is set aside with the code `dictionary`, and taken up later (ingest/owed.py).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence

from backhaul_codec import CodecError
from backhaul_codec.subjects import DICTIONARY_STREAM, stored_dictionary_subject
from backhaul_codec.wire.dictionaries import digest_in, plain, read_dictionary
from backhaul_spark.nats.direct_get import borrowed
from backhaul_spark.nats.endpoint import Endpoint

CODE = "dictionary"
"""Of a message whose dictionary is not there."""
CACHE_BYTES_MAX = 64 << 20
# So many of a vehicle may be missing; one that names a new one in every message is not asked about for long.
MISSING_A_DEVICE = 16

_Key = tuple[str, bytes]
# Of this process: executors live for many tasks.
_cached: OrderedDict[tuple[Endpoint, str, bytes], bytes] = OrderedDict()


class DictionaryReader:
    """The dictionaries of one hub's vehicles; travels to the executors as the endpoint that it is."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def plain(
        self, devices: Sequence[str | None], bodies: Sequence[bytes]
    ) -> list[bytes | CodecError]:
        """Return each message as one that needs no dictionary, or why that is not possible.

        `devices`: whose each message is; `bodies`: messages as UP has them, each of which `peek` accepts.

        Raises:
            HubServerError: the hub's server did not answer.
        """
        found: list[bytes | CodecError] = []
        missing: set[_Key] = set()
        in_vain: Counter[str] = Counter()
        for device, body in zip(devices, bodies, strict=True):
            try:
                digest = digest_in(body)
                if digest is None:
                    found.append(body)
                    continue
                dictionary = self._get((device or "", digest), missing, in_vain)
                found.append(plain(body, lambda _, it=dictionary: it))  # type: ignore[misc]
            except CodecError as error:
                found.append(error)
        return found

    def _get(self, key: _Key, missing: set[_Key], in_vain: Counter[str]) -> bytes | None:
        cached = _cached.get((self._endpoint, *key))
        if cached is not None:
            _cached.move_to_end((self._endpoint, *key))
            return cached
        if key in missing or in_vain[key[0]] == MISSING_A_DEVICE:
            return None
        dictionary = self._read(*key)
        if dictionary is None:
            missing.add(key)
            in_vain[key[0]] += 1
            return None
        _cached[self._endpoint, *key] = dictionary
        while sum(map(len, _cached.values())) > CACHE_BYTES_MAX:
            _cached.popitem(last=False)
        return dictionary

    def _read(self, device: str, digest: bytes) -> bytes | None:
        subject = stored_dictionary_subject(device, digest)
        with borrowed(self._endpoint) as reader:
            body = reader.newest(DICTIONARY_STREAM, subject)
        try:
            return None if body is None else read_dictionary(body, digest)
        except CodecError:
            return None
