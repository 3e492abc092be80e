"""The table of message kinds: one row each, by which subjects are read and rooms are found."""

from __future__ import annotations

from pathlib import Path

from backhaul_codec.kinds import (
    BULK,
    BY_PREFIX,
    KINDS,
    LIVE,
    SYSTEM_KINDS,
    Worth,
    stored_subjects,
    system_kind,
)
from backhaul_codec.subjects import (
    BUNDLE_SUBJECT,
    app_event_subject,
    dictionary_subject,
    event_subject,
    parse_leaf,
    result_subject,
)

ROOT = Path(__file__).parents[2]


def test_every_kind_has_a_prefix_of_its_own() -> None:
    assert len(BY_PREFIX) == len(KINDS)


def test_every_receiver_is_a_room() -> None:
    for kind in KINDS:
        for receiver in kind.receivers:
            package, room = receiver.split("/")
            assert (ROOT / package / f"backhaul_{package}" / room / "__init__.py").exists(), kind


def test_subjects_are_read_as_the_kind_that_they_were_written_as() -> None:
    subjects = [
        "f.a",
        BUNDLE_SUBJECT,
        dictionary_subject(bytes(6)),
        "p.a.b.c",
        event_subject("mark"),
        app_event_subject("x"),
        result_subject("1"),
    ]
    assert [parse_leaf(subject).kind for subject in subjects] == list(KINDS)


def test_a_vehicle_s_streams_store_every_kind_and_each_subject_once() -> None:
    """As they were before the table said so: a vehicle's streams go on."""
    assert stored_subjects(LIVE) == ["p.>", "e.>", "r.>"]
    assert stored_subjects(BULK) == ["f.>", "b", "d.>"]


def test_only_what_says_how_to_read_the_others_is_never_evicted() -> None:
    never = {name for name, kind in SYSTEM_KINDS.items() if kind.worth is Worth.ACCOUNT}
    assert never == {"clock", "epoch", "quarantined", "receipt"}
    assert system_kind("link.up") == (Worth.EVENT, True)
