"""The table of planted bugs fits the tree. No bug is planted here: `make mutations` does that."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mutations.__main__ import FAILED
from tests.mutations.mutants import MUTANTS

if TYPE_CHECKING:
    from tests.mutations.mutant import Mutant

ROOT = Path(__file__).parents[2]
EACH = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


def test_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 10


@EACH
def test_a_bug_can_be_planted_and_still_parses(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()
    assert ast.dump(ast.parse(mutant.changed(text))) != ast.dump(ast.parse(text))


@EACH
def test_the_tests_that_catch_it_are_there(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text())
        functions = [
            each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        assert name in {function.name for function in functions}, test


@EACH
def test_it_is_in_the_table_of_the_documentation(mutant: Mutant) -> None:
    assert f"\n| {mutant.bug} (`{mutant.name}`) | " in (ROOT / "docs/reliability.md").read_text()


def test_a_text_that_is_not_there_once_is_refused() -> None:
    mutant = MUTANTS[0]
    for text in ("", 2 * mutant.old):
        with pytest.raises(ValueError, match=f"stands {text.count(mutant.old)} times"):
            mutant.changed(text)


def test_failed_tests_are_found_in_what_pytest_says() -> None:
    said = """\
FAILED tests/a.py::test_one - AssertionError: assert 1 == 2
FAILED tests/a.py::test_two[a step - more] - ValueError: [x] - y
FAILED tests/a.py::test_three
ERROR tests/b.py - SyntaxError: invalid syntax
"""
    assert FAILED.findall(said) == [
        "tests/a.py::test_one",
        "tests/a.py::test_two[a step - more]",
        "tests/a.py::test_three",
    ]
