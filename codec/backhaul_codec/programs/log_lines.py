"""Limits of a log: the length of a line, and the number of a kind. Pure.

Agent and control plane log text that others chose: subjects, errors of a server, what a program printed.
So a field is cut, a vehicle's token never stands in it whole, and a fault that repeats is braked.
Each is a structlog processor.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from backhaul_codec.device_token import DEVICE_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    Fields = MutableMapping[str, Any]

TEXT_MAX = 2000
"""Characters of one field."""
TRACE_MAX = 8000
"""Characters of a traceback: its beginning and its end are kept."""
ITEMS_MAX = 50
DEPTH_MAX = 4
# As `add-device` and `enrol` make them; an underscore and a lane may follow.
_TOKEN = re.compile(rf"(?<![0-9A-Za-z])(?=(....)){DEVICE_TOKEN}(?![0-9A-Za-z])")
_WHOM = ("event", "device", "person", "lane", "stream", "code", "about")
# Of commands, and of enrolment tokens: such an id opens nothing, and an audit asks for it.
_IDS = ("id", "token")


def tidy(_logger: object, _method: str, fields: Fields) -> Fields:
    """Hide vehicles' tokens in all fields but ids, and cut long values."""
    for name, value in fields.items():
        length = TRACE_MAX if name == "exception" else TEXT_MAX
        fields[name] = _tidy(value, length, hide=name not in _IDS)
    return fields


def _tidy(value: Any, length: int, *, hide: bool, depth: int = DEPTH_MAX) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth and isinstance(value, dict):
        some = list(value.items())[:ITEMS_MAX]
        return {
            _text(str(key), length, hide): _tidy(each, length, hide=hide, depth=depth - 1)
            for key, each in some
        }
    if depth and isinstance(value, list | tuple | set | frozenset):
        some = list(value)[:ITEMS_MAX]
        return [_tidy(each, length, hide=hide, depth=depth - 1) for each in some]
    return _text(value if isinstance(value, str) else repr(value), length, hide)


def _text(text: str, length: int, hide: bool) -> str:
    if hide:
        text = _TOKEN.sub(r"\1****", text)
    if len(text) > length:
        half = length // 2
        text = f"{text[:half]} … {len(text) - 2 * half} more … {text[-half:]}"
    return text


class Brake:
    """Lets so many warnings and errors of a kind through, then one now and then, with their number.

    A kind is the event and whom it is about. Lines below a warning tell of what was asked for, and an
    audit counts on them: they are let through.
    """

    def __init__(
        self,
        monotonic_s: Callable[[], float],
        dropped: Callable[[], BaseException],
        *,
        burst: int = 20,
        every_s: float = 10.0,
        kinds_max: int = 10_000,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._dropped = dropped
        self._burst = burst
        self._every_s = every_s
        self._kinds_max = kinds_max
        # By kind: when it was last let through, how many more may be, how many were not.
        self._kinds: OrderedDict[tuple[object, ...], tuple[float, float, int]] = OrderedDict()

    def __call__(self, _logger: object, method: str, fields: Fields) -> Fields:
        """Let a line through, or raise the exception that ``dropped`` makes."""
        if method not in ("warning", "error", "exception", "critical"):
            return fields
        kind = tuple(str(fields.get(name, ""))[:100] for name in _WHOM)
        now_s = self._monotonic_s()
        seen_s, left, unlogged = self._kinds.pop(kind, (now_s, float(self._burst), 0))
        left = min(self._burst, left + (now_s - seen_s) / self._every_s)
        let_through = left >= 1
        self._kinds[kind] = (now_s, left - let_through, 0 if let_through else unlogged + 1)
        if len(self._kinds) > self._kinds_max:
            self._kinds.popitem(last=False)
        if not let_through:
            raise self._dropped()
        if unlogged:
            fields["unlogged"] = unlogged
        return fields
