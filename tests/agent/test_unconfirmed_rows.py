"""Staged rows of former runs: framed, dropped or set aside, by what is known of their epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_agent.commit.framer import pack
from backhaul_agent.commit.unconfirmed_rows import SUSPECTS, UnconfirmedRows
from backhaul_agent.ledger.rows import StagedRow
from backhaul_codec import Point

if TYPE_CHECKING:
    from collections.abc import Mapping


def point(number: int) -> Point:
    return Point("n", "t", number, float(number))


def row(id_: int, *numbers: int, intact: bool = True, boot: int = 0) -> StagedRow:
    points = [point(number) for number in numbers]
    return StagedRow(id_, "n", len(points), pack(points), intact, boot)


def suspects(*rows: StagedRow, meta: Mapping[str, str | int] | None = None) -> UnconfirmedRows:
    it = UnconfirmedRows()
    assert it.restore(rows, 8, {"live": 3, "bulk": 5}, meta or {}) == []
    return it


def numbers(it: UnconfirmedRows) -> list[int]:
    return [each.time for _, points in it.take_cleared() for each in points]


def test_rows_of_an_epoch_that_goes_on_are_framed() -> None:
    it = suspects(row(1, 1, 2), row(2, 3))
    assert (it.points, it.news) == (3, False)
    it.clear(8)
    assert (it.points, it.news, numbers(it)) == (0, True, [1, 2, 3])
    assert it.take_cleared() == []


def test_what_was_sent_is_dropped_and_the_rest_staged_anew() -> None:
    it = suspects(row(1, 1, 2), row(2, 3), row(3, 4))
    assert it.compare(8, [point(2), point(3), point(77)]) == 2
    assert numbers(it) == [4]
    sent = it.take_sent()
    assert sent.ids == [1, 2]
    assert [[each.time for each in points.points] for points in sent.rest] == [[1]]
    it.put_back(sent)
    assert it.take_sent() == sent


def test_another_value_at_the_same_time_is_another_point() -> None:
    it = suspects(row(1, 1))
    assert it.compare(8, [Point("n", "t", 1, 7.0)]) == 0
    assert numbers(it) == [1]


def test_rows_keep_the_epoch_they_were_staged_in_over_restarts() -> None:
    """Epoch 8 ended with rows 1 and 2 staged; row 3 came in its successor, which ends now."""
    meta = suspects(row(1, 1), row(2, 2)).meta()
    it = UnconfirmedRows()
    it.restore([row(1, 1), row(2, 2), row(3, 3)], 9, {"live": 1, "bulk": 0}, meta)
    assert [(each.epoch, each.last_seqs["bulk"]) for each in it.formers] == [(8, 5), (9, 0)]
    it.clear(9)
    assert numbers(it) == [3]
    assert [each.epoch for each in it.formers] == [8]
    assert [each.row.id for each in it._suspects] == [1, 2]
    assert [each.id for each in it.give_up(8)] == [1, 2]
    assert it.meta() == {SUSPECTS: "[]"}


def test_damaged_rows_are_returned_and_garbage_in_the_ledger_is_survived() -> None:
    it = UnconfirmedRows()
    damaged = it.restore([row(1, 1, intact=False), row(2, 2)], 8, {}, {SUSPECTS: "{garbage"})
    assert [each.id for each in damaged] == [1]
    assert it.points == 1


def test_stamps_that_wait_for_the_time_cannot_be_compared() -> None:
    assert suspects(row(1, 1), row(2, 2, boot=3)).marked(8)
    assert not suspects(row(1, 1)).marked(8)
