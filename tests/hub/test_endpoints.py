"""The table of services: who is answered, on which subject, and when."""

from __future__ import annotations

import ast
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec.strict.json import JsonError
from backhaul_hub import cli, questions
from backhaul_hub.control.acts import Acts
from backhaul_hub.control.endpoints import Endpoint, Services, endpoints
from backhaul_hub.errors import RightsError
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ASKING = (
    "ask",
    "access.ask",
    "operator.ask",
    "self._access.ask",
    "self.ask",
    "book.ask",
    "act",
    "done",
)
PAGING = ("pages", "answer_pages")
"""They ask for one page after another, which only reads."""
READING = (
    *("tokens", "users", "completeness", "event-hours", "dry-run"),
    *("import-start", "import-look", "audit-names", "erase-plan", "erasures"),
)
ANNA = Person("anna", "fleet", May.READ)


class Wire:
    """In place of a connection: what was subscribed to, and what is answered there."""

    max_payload = 1 << 20

    def __init__(self) -> None:
        self.served: dict[str, Callable[[Any], Awaitable[None]]] = {}

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> None:
        self.served[subject] = cb

    async def ask(self, subject: str, body: bytes) -> Any:
        said: list[bytes] = []

        async def respond(body: bytes) -> None:
            said.append(body)

        await self.served[subject](
            SimpleNamespace(subject=subject, data=body, respond=respond, headers=None)
        )
        return json.loads(said[0])


async def named(who: str, *asked: object) -> dict[str, Any]:
    return {"answered": who, "asked": repr(asked[-1])}


def services() -> Services:
    table = [
        Endpoint("stop", None, partial(named, "stop"), early=True),
        Endpoint(
            *("devices", questions.DevicesQuestion, partial(named, "operators")),
            *(May.READ, partial(named, "people")),
        ),
        Endpoint("node", questions.Node, partial(named, "node")),
        Endpoint("desire", questions.Desire, None, May.WRITE, partial(named, "desire")),
    ]
    tree: Any = SimpleNamespace(attached=lambda _: True)
    return Services(table, lambda person: Scope(person, tree, tuple))


async def test_operators_are_answered_by_the_table_and_early_where_it_says_so() -> None:
    wire: Any = Wire()
    await services().open(wire, early=True)
    assert list(wire.served) == ["hub.stop"]
    await services().open(wire)
    assert list(wire.served) == ["hub.stop", "hub.devices", "hub.node"], "desire is for people"
    assert (await wire.ask("hub.stop", b"no JSON"))["asked"] == "None", "the body is not read"
    said = await wire.ask("hub.devices", b'{"after": "a"}')
    assert said == {"answered": "operators", "asked": "DevicesQuestion(after='a')"}
    assert (await wire.ask("hub.devices", b""))["asked"] == "DevicesQuestion(after='')"
    refused = await wire.ask("hub.devices", b'{"afte": "a"}')
    assert "unknown field" in refused["error"]["message"]


async def test_people_are_answered_by_the_same_table_within_their_right() -> None:
    asked = services()
    said = await asked.answer(ANNA, "devices", b'{"after": "a"}')
    assert said == {"answered": "people", "asked": "DevicesQuestion(after='a')"}
    with pytest.raises(JsonError, match="unknown field"):
        await asked.answer(ANNA, "devices", b'{"afte": "a"}')
    with pytest.raises(RightsError, match="this takes the right to write"):
        await asked.answer(ANNA, "desire", b"no JSON: the right counts first")
    for service in ("node", "stop", "no-such"):
        with pytest.raises(RightsError, match="there is no service") as refused:
            await asked.answer(ANNA, service, b"")
        assert refused.value.hint == "desire, devices"


def table() -> list[Endpoint]:
    anything: Any = SimpleNamespace()
    names = "node get set tree conflicts settle devices revert commands state events shadow desire command"
    names += " alerts acknowledge silence history"
    names += " plan erase erasures tables_erased"
    for name in names.split():
        setattr(anything, name, partial(named, name))
    others = (
        *(
            "acknowledge",
            "alerts",
            "hand_over",
            "commands",
            "devices",
            "history",
            "notify",
            "one_machine",
        ),
        *("silence", "status", "stop"),
    )
    page: Any = SimpleNamespace(
        rows=SimpleNamespace(fleet=partial(named, "fleet"), series=partial(named, "series")),
        hours=SimpleNamespace(hours=partial(named, "hours")),
        logins=SimpleNamespace(login=partial(named, "login")),
        files=SimpleNamespace(files=partial(named, "files")),
        health=partial(named, "health"),
    )
    acts = Acts(Path(), anything, anything, anything, anything, anything)
    rest = dict.fromkeys(others, partial(named, "other"))
    return endpoints(anything, anything, page, acts.table(), **rest)


def test_a_subcommand_has_a_question_asked_again_if_it_only_reads() -> None:
    again = {
        each.value: any(option.arg == "reads" for option in call.keywords)
        or ast.unparse(call.func) in PAGING
        for file in Path(cli.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in (*ASKING, *PAGING)
        for each in call.args
        if isinstance(each, ast.Constant)
    }
    assert len(again) > 15
    reading = {each.service for each in table() if each.right is May.READ} | {"status", *READING}
    reading.discard("history")  # one that takes long would wait for itself at the job that answers
    assert again == {service: service in reading for service in again}


def test_the_table_names_each_service_once_and_a_right_wherever_people_are_answered() -> None:
    found = table()
    assert len({each.service for each in found}) == len(found) == 51
    assert all((each.right is None) == (each.people is None) for each in found)
    assert {each.service: each.right for each in found if each.people} == {
        **dict.fromkeys(("devices", "get", "tree", "conflicts", "commands"), May.READ),
        **dict.fromkeys(("state", "events", "shadow", "alerts", "history"), May.READ),
        **dict.fromkeys(("fleet", "series", "hours", "health", "login", "files"), May.READ),
        **dict.fromkeys(("set", "revert", "desire", "acknowledge", "silence"), May.WRITE),
        "command": May.COMMAND,
    }
