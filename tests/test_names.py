"""Names in code: one style for log events; a class name that stands in two modules says two things."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TWINS = Path(__file__).with_name("twin_classes.json")
MODULES = sorted(
    path
    for top in ("agent", "hub", "codec", "spark")
    for path in (ROOT / top).glob("backhaul_*/**/*.py")
)


# Parsing every module would take seconds.
LOGGED = re.compile(r"\blog\.(?:debug|info|warning|error|exception|critical)\(\s*\"([^\"]+)\"")
CLASSES = re.compile(r"^class ([A-Za-z]\w*)(?:\[[^\]]*\])?(\([^)]*\))?:", re.MULTILINE)


@cache
def sources() -> dict[str, str]:
    """Return the modules of the packages, by their paths."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in MODULES}


def log_events(source: str) -> list[str]:
    """Return the events of a module that are written out in it, in calls of `log` and as a `Trouble`'s event."""
    found: list[str] = LOGGED.findall(source)
    if "Trouble(" not in source:
        return found
    for call in ast.walk(ast.parse(source)):
        match call:
            case ast.Call(func=ast.Name("Trouble")):
                over = [each.value for each in call.keywords if each.arg == "over"]
                said = [*call.args[1:2], *over]
                found += [str(each.value) for each in said if isinstance(each, ast.Constant)]
    return [each for each in found if each]


@pytest.mark.parametrize("package", ["agent", "hub", "codec", "spark"])
def test_log_events_are_written_in_snake_case(package: str) -> None:
    events = {
        event
        for name, source in sources().items()
        if name.startswith(f"{package}/")
        for event in log_events(source)
    }
    assert [each for each in sorted(events) if not re.fullmatch(r"[a-z][a-z0-9_]*", each)] == []


def twin_classes() -> dict[str, list[str]]:
    """Return public class names that stand in more than one module, each with its modules; protocols left out."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, source in sources().items():
        for name, bases in CLASSES.findall(source):
            if not re.search(r"\bProtocol\b", bases):
                found[name].append(module)
    return {name: modules for name, modules in sorted(found.items()) if len(modules) > 1}


def test_class_names_that_stand_in_two_modules_only_become_fewer() -> None:
    """Choose a name that says the thing; where one is gone, take its line out of twin_classes.json."""
    allowed = json.loads(TWINS.read_text())
    more = {
        name: modules
        for name, modules in twin_classes().items()
        if len(modules) > allowed.get(name, 1)
    }
    assert more == {}
