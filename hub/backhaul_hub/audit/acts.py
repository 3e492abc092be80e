"""Which questions are acts that the audit log names, and how. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backhaul_hub import questions as q
from backhaul_hub.audit.entry import AuditedAct

LASTING = frozenset(
    {
        *("enrol", "add-device", "revoke", "rotate", "erase", "tables-erased"),
        *("user-add", "user-link", "user-rm"),
    }
)
"""Those that are answered once their entry is stored."""
READS = frozenset({"history"})
"""Of these one entry in an hour, for each person and series."""
_Words = Callable[[Any], tuple[str, str]]


def _device(question: Any) -> tuple[str, str]:
    return question.device, ""


def _points(question: q.Set) -> tuple[str, str]:
    below = f"{question.node}." if question.node else ""
    return question.device, " ".join(f"{below}{each.type}" for each in question.points)


# By service: what a question is about, and more of it. Values are none of it: they would outlive their device.
_WORDS: dict[str, _Words] = {
    "enrol": _device,
    "add-device": lambda it: (it.device, " ".join(it.nodes or ())),
    "revoke": _device,
    "rotate": _device,
    "tables-erased": _device,
    "one-machine": _device,
    "import-start": lambda it: (" ".join(it.devices[:20]), ""),
    "hand-over": lambda it: (it.to, ""),
    "node": lambda it: (it.address, " ".join(filter(None, (it.do, it.source, it.under)))),
    "set": _points,
    "revert": lambda it: (f"conflict {it.id}", "accept" if it.accept else ""),
    "acknowledge": lambda it: (f"alert {it.id}", ""),
    "silence": lambda it: (it.group or f"silence {it.end}", it.name),
    "notify": lambda it: (it.channel, ""),
    "history": lambda it: (it.device, f"{it.node}.{it.type}" + (f".{it.key}" if it.key else "")),
    "user-add": lambda it: (it.name, f"may {it.may} below {it.group}"),
    "user-link": lambda it: (it.name, ""),
    "user-rm": lambda it: (it.name, ""),
    # A name that has just been erased is not written down again.
    "erase": lambda it: (it.device or "a person", ""),
    "stop": lambda it: ("", ""),
}
_PEOPLE = frozenset({"user-add", "user-link", "user-rm"})


def act_of(service: str, who: str, question: Any, refused: str) -> AuditedAct | None:
    """Return the act that a question was, None where it is none."""
    words = _WORDS.get(service)
    if words is None:
        return None
    about, detail = words(question)
    return AuditedAct(who, service, about, detail, refused, person=service in _PEOPLE)
