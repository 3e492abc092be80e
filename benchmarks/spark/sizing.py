"""What a fleet of 1,000, 10,000 and 100,000 vehicles needs: computed, each figure from a measured one.

Nothing is measured here; the constants stand in tests/support/fleet_needs.py.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tests.support.fleet_needs import CONSTANTS, FLEETS, NEEDS, readable


def run(*, quick: bool) -> dict[str, object]:
    """Print the table and what it is made of; `quick` changes nothing."""
    table = Table(title="What a fleet needs", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("unit")
    for vehicles in FLEETS:
        table.add_column(f"{vehicles:,}", justify="right")
    table.add_column("note")
    for need in NEEDS:
        cells = [readable(need.of(vehicles)) for vehicles in FLEETS]
        table.add_row(need.name, need.unit, *cells, need.note)
    console = Console(width=110, highlight=False)
    console.print(table)
    constants = Table("constant", "value", "unit", "measured by")
    for name, constant in CONSTANTS.items():
        constants.add_row(name, f"{constant.value:g}", constant.unit, constant.source)
    console.print(constants)
    return {
        "vehicles": list(FLEETS),
        "needs": {need.name: [need.of(vehicles) for vehicles in FLEETS] for need in NEEDS},
    }
