"""The floor plan: every folder of code is a room that says what it is for, and holds what can be overseen."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("agent", "hub", "codec", "spark")
TOPS = [*(ROOT / each / f"backhaul_{each}" for each in PACKAGES), ROOT / "codec/backhaul_runtime"]
ROOMS = sorted(file.parent for top in TOPS for file in top.rglob("__init__.py"))
MODULES_MAX = 20
LINES_MAX = 400
# Parsing every file would take a second and more.
IMPORTS = re.compile(
    r"^[ \t]*(?:from[ \t]+(\S+)[ \t]+import[ \t]+(\([^)]*\)|.*)|import[ \t]+(.*))$", re.MULTILINE
)


def named(room: Path) -> str:
    return str(room.relative_to(ROOT))


def said(room: Path) -> str:
    return ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""


@pytest.mark.parametrize("room", ROOMS, ids=named)
def test_every_room_says_what_it_is_for_and_where_one_enters(room: Path) -> None:
    lines = [line for line in said(room).splitlines() if line.strip()]
    assert 2 <= len(lines) <= 7
    assert "Enter " in said(room) or room.name == "catalog"


@pytest.mark.parametrize("room", ROOMS, ids=named)
def test_no_room_holds_more_than_can_be_overseen(room: Path) -> None:
    modules = [each.name for each in room.glob("*.py") if each.name != "__init__.py"]
    assert len(modules) <= MODULES_MAX, modules


def test_no_module_is_longer_than_can_be_overseen() -> None:
    """Of tests it is split by subject; what the parts share has a module beside them, or in tests/support."""
    sizes = {
        str(file.relative_to(ROOT)): file.read_text().count("\n")
        for top in (*TOPS, ROOT / "tests", ROOT / "benchmarks", ROOT / "demo")
        for file in top.rglob("*.py")
    }
    assert len(sizes) > 1000
    assert {name: lines for name, lines in sizes.items() if lines > LINES_MAX} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_readme_of_a_package_lists_its_rooms(package: str) -> None:
    top = ROOT / package / f"backhaul_{package}"
    page = (ROOT / package / "README.md").read_text().splitlines()
    rows = [line for line in page if line.startswith("| [`") and line.split("`")[1].endswith("/")]
    assert rows == [
        f"| [`{room.relative_to(top)}/`](backhaul_{package}/{room.relative_to(top)}) | {said(room).partition(chr(10))[0]} |"
        for room in ROOMS
        if top in room.parents
    ]


def test_no_module_stands_in_a_folder_that_is_no_room() -> None:
    folders = {file.parent for top in TOPS for file in top.rglob("*.py")}
    assert sorted(folders) == ROOMS


def modules_at(name: str) -> list[Path]:
    """Return the modules that `uplink/lane.py` or `hub/access/rules.py` may mean."""
    first, _, rest = name.partition("/")
    one = [top for top in TOPS if rest and top.name == f"backhaul_{first}"]
    tops, wanted = [*(one or TOPS), ROOT], rest if one else name
    return [file for top in tops for file in (top / wanted, top / name) if file.exists()]


def test_the_architecture_names_modules_and_functions_that_are_there() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    modules = set(re.findall(r"`([a-z_0-9]+/[a-z_0-9/]+\.py)`", page))
    assert len(modules) > 50
    assert [name for name in sorted(modules) if not modules_at(name)] == []
    steps = re.findall(r"`([a-z_0-9]+/[a-z_0-9/]+\.py)`, `(?:(\w+)\.)?(\w+)`", page)
    assert len(steps) > 20
    gone = [
        (module, name)
        for module, _, name in steps
        if not any(
            re.search(rf"^\s*(?:class|(?:async )?def) {name}\b", file.read_text(), re.MULTILINE)
            for file in modules_at(module)
        )
    ]
    assert gone == []


@cache
def imports_of_tests() -> list[tuple[str, str]]:
    """Return (file, module) of every import in a module below tests, in functions too."""
    return [
        (str(file.relative_to(ROOT)), f"{module}.{name}".strip("."))
        for file in (ROOT / "tests").rglob("*.py")
        for module, some, plain in IMPORTS.findall(file.read_text())
        for name in re.findall(r"[\w.]+", some or plain)
    ]


def test_no_test_module_imports_another() -> None:
    """Else an edit of one file's tests breaks another's; shared helpers have modules of their own."""
    found = [
        (file, name)
        for file, name in imports_of_tests()
        if any(part.startswith("test_") for part in name.split("."))
    ]
    assert found == []


def test_no_module_below_tests_imports_a_benchmark() -> None:
    """A benchmark may change what it measures at will; what both need stands in tests/support."""
    found = [each for each in imports_of_tests() if each[1].split(".")[0] == "benchmarks"]
    assert found == []


def test_no_test_module_mixes_tests_with_and_without_servers() -> None:
    """Else a quick run imports what only the others need; of each kind there is a module, `..._at_server.py`."""
    server, mixed = re.compile(r"mark\.(?:nats|spark|chaos)\b"), []
    for file in (ROOT / "tests").rglob("test_*.py"):
        text = file.read_text()
        if not server.search(text) or re.search(r"^pytestmark = ", text, re.MULTILINE):
            continue
        marked = {
            any(server.search(ast.unparse(each)) for each in test.decorator_list)
            for test in ast.parse(text).body
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef)
            and test.name.startswith("test_")
        }
        if len(marked) > 1:
            mixed.append(str(file.relative_to(ROOT)))
    assert mixed == []
