"""Read the files of the checkpoint that Spark keeps for ingest. No Spark."""

from __future__ import annotations

import json
from hashlib import blake2b

from backhaul_spark.checkpoint import FILE
from backhaul_spark.nats.offsets import Marks, from_json
from backhaul_spark.tables.files import open_input


def checkpoint_id(uri: str) -> str:
    """Name a checkpoint. Raises: OSError while its query has not started yet."""
    # Hadoop takes what follows file:// as it is; Arrow wants it percent-encoded.
    with open_input(uri.removeprefix(FILE), "metadata") as file:
        return f"backhaul-checkpoint-{json.loads(file.read())['id']}"


def batch_digest(uri: str, batch: int) -> int:
    """Return a number that stands for the plan that Spark made of a batch.

    Its own number is not enough: a checkpoint that went back in time (a power cut, a copy put back)
    plans another batch under one that the tables have already.
    """
    with open_input(uri.removeprefix(FILE), f"offsets/{batch}") as file:
        return int.from_bytes(blake2b(file.read(), digest_size=7).digest(), "little")


def end_of_batch(uri: str, batch: int) -> Marks:
    """Return up to where a batch was planned to read the streams. Raises: OSError, ValueError: nobody knows."""
    with open_input(uri.removeprefix(FILE), f"offsets/{batch}") as file:
        # A version, what Spark itself has to remember, and a line for each source: here is one.
        lines = file.read().decode().splitlines()
    return from_json(json.loads(lines[2]))
