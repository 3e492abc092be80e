"""What all tests share: how they are divided where they run in several processes."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one process take all that need the JVM, and one all others that start servers.

    The servers' tests mostly wait; two at a time on two cores would wait for one another.
    """
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("nats") or item.get_closest_marker("chaos"):
            item.add_marker(pytest.mark.xdist_group("servers"))
