"""What all tests share: no deadlines in examples, and how several processes divide them."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A machine with other work to do is slow, not wrong.
settings.register_profile("backhaul", deadline=None)
settings.load_profile("backhaul")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one process take all that need the JVM, and one all others that start servers.

    The servers' tests mostly wait; two at a time on two cores would wait for one another.
    """
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("nats") or item.get_closest_marker("chaos"):
            item.add_marker(pytest.mark.xdist_group("servers"))
