"""Spare a Spark worker the search for garbage among its long-lived objects. Executor.

pyspark collects all generations after each task. Among the objects of pandas and pyarrow that was a quarter
of what the workers of the twin's job did (ADR 29).
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_modules(task: str) -> None:
    """Leave all present objects out of later collections; once in a process for each kind of task.

    Called by the first of a kind, when its modules are loaded. Garbage in cycles is collected before.
    """
    gc.collect()
    gc.freeze()
