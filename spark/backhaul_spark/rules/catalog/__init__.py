"""The rules, a file each.

Enter at `known_rules`. A file put here is found; nothing else has to be told. A rule sees arrays and its
own state, and no table.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from backhaul_spark.rules.rule import Rule


def known_rules() -> dict[str, type[Rule]]:
    """Return the rules of this package by name, in the order of names."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    found = {rule.name: rule for rule in _below(Rule) if rule.__module__.startswith(__name__)}
    return dict(sorted(found.items()))


def _below(kind: type[Rule]) -> Iterator[type[Rule]]:
    for rule in kind.__subclasses__():
        yield rule
        yield from _below(rule)
