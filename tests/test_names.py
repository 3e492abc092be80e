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
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


@cache
def trees() -> dict[str, ast.Module]:
    """Return the modules of the packages, by their paths."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in MODULES}


def log_events(tree: ast.Module) -> list[str]:
    """Return the events of a module that are written out in it, in calls of `log` and as a `Trouble`'s event."""
    found: list[str] = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        said: list[ast.expr] = []
        match call.func:
            case ast.Attribute(value=ast.Name("log"), attr=level) if level in LEVELS:
                said = call.args[:1]
            case ast.Name("Trouble"):
                said = [
                    *call.args[1:2],
                    *(each.value for each in call.keywords if each.arg == "over"),
                ]
        found += [str(each.value) for each in said if isinstance(each, ast.Constant) and each.value]
    return found


@pytest.mark.parametrize("package", ["agent", "hub", "codec", "spark"])
def test_log_events_are_written_in_snake_case(package: str) -> None:
    events = {
        event
        for name, tree in trees().items()
        if name.startswith(f"{package}/")
        for event in log_events(tree)
    }
    assert [each for each in sorted(events) if not re.fullmatch(r"[a-z][a-z0-9_]*", each)] == []


def twin_classes() -> dict[str, list[str]]:
    """Return public class names that stand in more than one module, each with its modules; protocols left out."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees().items():
        for node in tree.body:
            if (
                isinstance(node, ast.ClassDef)
                and not node.name.startswith("_")
                and "Protocol" not in {ast.unparse(base).partition("[")[0] for base in node.bases}
            ):
                found[node.name].append(module)
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
