"""The questions there are: a text in SQL each, with a head about its answer. Pure.

A head's lines are comments. The first is the answer in a sentence. The others are keys: `reads`, views of
`views.py`; `span`, how far back from its end it looks, unless told; `tsbs`, the query of TSBS that it is; and
`column NAME`, the meaning and the unit of each column of the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from backhaul_spark.errors import OptionError

_UNITS_NS = {"minutes": 60_000_000_000, "hours": 3_600_000_000_000, "days": 86_400_000_000_000}


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        name: as `backhaul-spark ask` takes it.
        about: its answer, a sentence.
        reads: the views that it reads.
        span_ns: how far back it looks, None: as far as there is anything.
        tsbs: the query of the benchmark suite TSBS that it is, "" for none.
        columns: what each column of the answer means.
        sql: the question.
    """

    name: str
    about: str
    reads: tuple[str, ...]
    span_ns: int | None
    tsbs: str
    columns: dict[str, str]
    sql: str


def parse(name: str, text: str) -> Question:
    """Read a question's file."""
    head = re.match(r"(?:--.*\n)+", text)
    assert head, name
    about, *rest = [line[2:].strip() for line in head[0].splitlines()]
    keys: dict[str, str] = {}
    columns: dict[str, str] = {}
    for line in rest:
        key, _, value = line.partition(": ")
        if key.startswith("column "):
            columns[key.removeprefix("column ")] = value
        else:
            keys[key] = value
    span = keys.pop("span", None)
    reads, tsbs = keys.pop("reads"), keys.pop("tsbs", "")
    assert not keys, (name, keys)
    return Question(
        name,
        about,
        tuple(reads.split(", ")),
        None if span is None else _ns(span),
        tsbs,
        columns,
        text[head.end() :].strip(),
    )


def _ns(span: str) -> int:
    number, unit = span.split()
    return int(number) * _UNITS_NS[unit]


@cache
def questions() -> dict[str, Question]:
    """Return all questions by name."""
    folder = resources.files("backhaul_spark.questions") / "sql"
    found = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    names = [name.removesuffix(".sql") for name in found]
    return {name: parse(name, (folder / f"{name}.sql").read_text("utf-8")) for name in names}


def question(name: str) -> Question:
    """Return a question. Raises: OptionError: there is none of that name."""
    try:
        return questions()[name]
    except KeyError:
        raise OptionError("NAME", name, "one of " + ", ".join(questions())) from None
