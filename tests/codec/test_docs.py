"""What the documents say of the codec is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import backhaul_codec

ROOT = Path(__file__).parents[2]
SOURCES = sorted(Path(backhaul_codec.__file__).parent.rglob("*.py"))


def codes_in(source: Path) -> set[str]:
    calls = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call)]
    errors = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "CodecError"]
    second = [error.args[1] for error in errors if len(error.args) > 1]
    return {arg.value for arg in second if isinstance(arg, ast.Constant) and type(arg.value) is str}


def test_every_code_is_in_the_list_of_the_format() -> None:
    codes = set().union(*map(codes_in, SOURCES))
    assert {"crc", "column", "batch"} <= codes
    listed = set(re.findall(r"`(\w+)`", (ROOT / "docs/wire-format.md").read_text()))
    assert codes <= listed


def test_the_examples_of_the_readme_run() -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "codec/README.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(examples[0], names)
    names |= {"messages": [names["message"]], "subjects": ["f.battery"]}
    exec(examples[1], names)
    assert names["rejected"] == []
