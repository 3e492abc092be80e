"""An import-linter contract: a module that calls itself pure imports nothing that does I/O or asks the time.

The contract reads docstrings, so that no list of modules has to be kept: a module calls itself pure where
the first line of its docstring says "pure", or a sentence of it begins with "Pure".
"""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grimp import ImportGraph

_FIRST_LINE = re.compile(r"\bpure\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?:^|[.:] |\n)Pure\b")


def calls_itself_pure(source: str) -> bool:
    """Return whether the docstring of a module's source calls the module pure."""
    docstring = ast.get_docstring(ast.parse(source)) or ""
    first, _, rest = docstring.partition("\n")
    return bool(_FIRST_LINE.search(first) or _SENTENCE.search(rest))


class PureContract(Contract):
    """Modules that call themselves pure may not import `forbidden` directly, types included."""

    packages = fields.SetField(subfield=fields.StringField())
    forbidden = fields.SetField(subfield=fields.StringField())
    at_least = fields.IntegerField()
    """So many modules call themselves pure: fewer mean that the contract has stopped to find them."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Return the imports that a pure module may not have."""
        forbidden = cast("set[str]", self.forbidden)
        pure = sorted(self._pure(graph.modules))
        found = [
            (module, imported)
            for module in pure
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if imported.partition(".")[0] in forbidden
        ]
        few = len(pure) < cast("int", self.at_least)
        return ContractCheck(
            kept=not found and not few, metadata={"found": found, "few": few, "pure": len(pure)}
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import that breaks the contract."""
        for module, imported in check.metadata["found"]:
            output.print_error(f"{module} calls itself pure and imports {imported}")
        if check.metadata["few"]:
            output.print_error(f"only {check.metadata['pure']} modules call themselves pure")

    def _pure(self, modules: Iterable[str]) -> Iterable[str]:
        packages = cast("set[str]", self.packages)
        for module in modules:
            if module.partition(".")[0] in packages:
                spec = importlib.util.find_spec(module.partition(".")[0])
                assert spec is not None
                assert spec.submodule_search_locations
                path = Path(spec.submodule_search_locations[0], *module.split(".")[1:])
                file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
                if calls_itself_pure(file.read_text()):
                    yield module
