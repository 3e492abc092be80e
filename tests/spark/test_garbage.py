"""What a worker keeps for good is not looked through after each task."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from backhaul_spark.garbage import spare_modules

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    # Other tests have actors and sources work in this process.
    gc.unfreeze()
    spare_modules.cache_clear()
    yield
    gc.unfreeze()
    spare_modules.cache_clear()


def test_what_is_in_memory_at_the_first_task_is_spared_and_nothing_after() -> None:
    spare_modules("read")
    spared = gc.get_freeze_count()
    assert spared > 1_000
    later = [[number] for number in range(100)]
    spare_modules("read")
    assert gc.get_freeze_count() <= spared
    assert any(each is later for each in gc.get_objects())


def test_each_kind_of_task_has_modules_of_its_own() -> None:
    spare_modules("read")
    spared = gc.get_freeze_count()
    later = [[number] for number in range(100)]
    spare_modules("twin")
    assert gc.get_freeze_count() > spared
    assert not any(each is later for each in gc.get_objects())
