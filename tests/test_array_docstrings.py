"""Public functions over numpy arrays say shape and dtype of each: the annotation knows no shape."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ARRAY = re.compile(r"NDArray|ndarray|\b(?:Ints|Floats|Flags)\b")
SHAPE = re.compile(r"\(\w+, ?\w*\)")
DTYPE = re.compile(r"\b(?:u?int\d+|float\d+|bool|intp|dtype [A-Z]+)\b")


def over_arrays() -> dict[str, str]:
    """Return the docstrings of public functions and methods that take numpy arrays, by their places."""
    found: dict[str, str] = {}
    for top in ("agent", "hub", "codec", "spark"):
        for file in (ROOT / top).glob("backhaul_*/**/*.py"):
            text = file.read_text()
            if not ARRAY.search(text):
                continue
            for scope in ast.walk(ast.parse(text)):
                if not isinstance(scope, ast.Module | ast.ClassDef):
                    continue
                if isinstance(scope, ast.ClassDef) and scope.name.startswith("_"):
                    continue
                for each in scope.body:
                    if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
                        every = (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)
                        types = [ast.unparse(one.annotation) for one in every if one.annotation]
                        if any(map(ARRAY.search, types)):
                            place = f"{file.relative_to(ROOT)}:{each.name}"
                            found[place] = ast.get_docstring(each) or ""
    return found


def test_public_functions_over_arrays_say_shape_and_dtype() -> None:
    found = over_arrays()
    assert len(found) > 45
    assert [
        place for place, said in found.items() if not (SHAPE.search(said) and DTYPE.search(said))
    ] == []
