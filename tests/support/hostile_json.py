"""JSON as nobody should send it: almost right, far too large, or none at all."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMES = (
    *("value", "time", "dtype", "lane", "clock", "node", "points", "type", "key", "parent", "from"),
    *("to", "limit", "name", "bytes", "id", "data", "previous", "reason", "deleted", "delete"),
    *("soc", "cell.1", "a b", "device", "params", "deadline_s", "who", "paths", "since_ns", "kind"),
    *(
        "part",
        "forget",
        "only",
        "settled",
        "accept",
        "do",
        "address",
        "under",
        "source",
        "t1",
        "lanes",
    ),
    *("epoch", "epochs", "token", "public_key", "proof", "", "é", "\x00", "x" * 300),
)
WORDS = (
    *(
        "int64",
        "float64",
        "text",
        "json",
        "bytes",
        "opaque9",
        "live",
        "bulk",
        "system",
        "gps",
        "VID-001",
    ),
    *("2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0000-00-00T00:00:00Z", "create", "desired"),
    *("NaN", "Infinity", "AQI=", "gps.rate", "fleet", "../x", "a" * 2000, "\x00", "é", ""),
)
# Texts of JSON that readers stumble over, and some that only look like it.
TOKENS = (
    *("0", "1", "-1", "-0", "5", "1.5", "true", "false", "null", "{}", "[]", '""'),
    *("9007199254740993", "9223372036854775808", "18446744073709551615", "18446744073709551616"),
    *("-9223372036854775809", "9" * 310, "9" * 5000, "-" + "9" * 5000, "1e999", "-1e999", "1e308"),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "0.12345678901234567891",
        "1e-400",
        "0e99999999999",
        "01",
        "+1",
    ),
    *(
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\\u0000"',
        '"',
        "{",
        "[",
        '{"a":',
        "tru",
        "\ufeff1",
        "1 2",
    ),
    *("[" * 5000 + "]" * 5000, '{"a":' * 500 + "1" + "}" * 500, "[" * 90 + "]" * 90, "[" * 20_000),
)


class Hostile:
    """Makes payloads by a seed: requests of given forms with something put in for each %, and anything else."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def questions(self, forms: Mapping[str, Sequence[str]], count: int) -> list[tuple[str, bytes]]:
        """Return subjects and payloads, most of them by the forms of their subject."""
        subjects = self._random.choices(list(forms), k=count)
        return [(subject, self.payload(*forms[subject])) for subject in subjects]

    def payload(self, *forms: str) -> bytes:
        """Return one payload; some are no JSON at all, and in some a name stands twice."""
        among = self._random.random()
        if among < 0.05:
            return self._random.randbytes(self._random.randrange(40))
        if among < 0.2:
            return self._object(3).encode(errors="replace")
        form = self._random.choice(("%", *forms, *forms))
        between = form.split("%")
        puts = [self._said(2) for _ in between[1:]] + [""]
        return "".join(map("".join, zip(between, puts, strict=True))).encode(errors="replace")

    def _said(self, levels: int) -> str:
        among = self._random.random()
        if among < 0.6 or not levels:
            return self._random.choice(TOKENS)
        if among < 0.8:
            return json.dumps(self._random.choice(WORDS))
        if among < 0.9:
            return self._object(levels - 1)
        return f"[{', '.join(self._said(levels - 1) for _ in range(self._random.randrange(4)))}]"

    def _object(self, levels: int) -> str:
        names = self._random.choices(NAMES, k=self._random.randrange(6))
        return f"{{{', '.join(f'{json.dumps(name)}: {self._said(levels)}' for name in names)}}}"
