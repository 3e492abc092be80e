"""The planted bugs: each one edit of one file, and the few quick tests that must go red for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

ACKNOWLEDGED_EARLY = """\
        arrival.answer(arrival.content, None)
        arrival = arrival._replace(answer=lambda content, refusal: None)
        self._pending.append("""


class Mutant(NamedTuple):
    """A bug that somebody could make. ``old`` stands in ``file`` exactly once.

    ``tests``: ids of pytest without parameters, of which one must fail.
    """

    name: str
    bug: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def plant(self, tree: Path) -> None:
        """Put the bug into a tree.

        Raises:
            ValueError: the text to replace is not there exactly once.
        """
        path = tree / self.file
        path.write_text(self.changed(path.read_text()))

    def changed(self, text: str) -> str:
        """Return the file's text with the bug. Raises: ValueError: as `plant`."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: its old text stands {count} times in {self.file}")
        return text.replace(self.old, self.new)


def named(file: str, *tests: str) -> tuple[str, ...]:
    """Return the ids of tests of one file."""
    return tuple(f"{file}::{test}" for test in tests)


MUTANTS = (
    Mutant(
        "ledger-not-synced",
        "the ledger commits without fsync",
        "agent/backhaul_agent/ledger_schema.py",
        'execute("PRAGMA synchronous = FULL")',
        'execute("PRAGMA synchronous = OFF")',
        named("tests/agent/test_ledger.py", "test_synced_at_every_commit"),
    ),
    Mutant(
        "hub-db-not-synced",
        "hub.db commits without fsync",
        "hub/backhaul_hub/schema.py",
        'execute("PRAGMA synchronous = FULL")',
        'execute("PRAGMA synchronous = OFF")',
        named("tests/hub/test_registry.py", "test_synced_at_every_commit"),
    ),
    Mutant(
        "acknowledged-early",
        "a program hears `kept` before the commit",
        "agent/backhaul_agent/writer.py",
        "        self._pending.append(",
        ACKNOWLEDGED_EARLY,
        named("tests/agent/test_writer.py", "test_a_failing_disk_refuses_clearly_and_heals"),
    ),
    Mutant(
        "evicted-in-silence",
        "what is evicted leaves no receipt",
        "agent/backhaul_agent/room.py",
        "changes.messages.append(self._receipt(lane.name, lane.epoch, lo, hi, reason))",
        "pass",
        named(
            "tests/agent/test_room.py",
            "test_the_oldest_telemetry_goes_with_one_receipt_for_each_spell",
        ),
    ),
    Mutant(
        "expected-sequence-forgotten",
        "messages are appended without the last sequence that is expected",
        "agent/backhaul_agent/lane.py",
        'headers={"Nats-Expected-Last-Sequence": str(expected), **headers}',
        "headers=dict(headers)",
        named("tests/agent/test_lane.py", "test_only_the_first_of_the_late_appends_arrives"),
    ),
    Mutant(
        "resend-dropped",
        "of what the hub asks for again the first run is dropped",
        "agent/backhaul_agent/resend.py",
        "self._asked = deque(works)",
        "self._asked = deque(list(works)[1:])",
        named("tests/agent/test_resend.py", "test_a_newer_request_replaces_the_older_but_no_drain"),
    ),
    Mutant(
        "command-run-again",
        "a command that a kill cut short is started again",
        "agent/backhaul_agent/command_book.py",
        "return self._is_safe(row) and row.runs < RUNS_MAX",
        "return row.runs < RUNS_MAX",
        named(
            "tests/agent/test_commands.py",
            "test_a_run_cut_short_is_run_again_only_where_that_does_no_harm",
            "test_a_run_cut_short_is_reported_and_never_started_again",
        ),
    ),
    Mutant(
        "repair-skipped",
        "a gap is never asked for",
        "hub/backhaul_hub/repair.py",
        "return quiet_s >= GRACE_S or known.quiet_since_s < view.up_since_s",
        "return False",
        named("tests/hub/test_repair.py", "test_a_gap_is_asked_for_once_it_has_stood_for_a_while"),
    ),
    Mutant(
        "lag-trusted",
        "a source that reports lag 0 is believed, whatever the vehicle has said",
        "hub/backhaul_hub/source_keeper.py",
        "if silent_s < SILENT_LINK_S:",
        'if silent_s < SILENT_LINK_S and source["lag"]:',
        named("tests/hub/test_lag.py", "test_a_source_that_stands_still_at_lag_0_is_set_up_again"),
    ),
    Mutant(
        "watermark-over-hole",
        "the watermark is the highest seq that came, holes or not",
        "hub/backhaul_hub/continuity.py",
        "return self.accounted.contiguous",
        "return self.accounted.highest",
        named(
            "tests/hub/test_continuity.py",
            "test_watermark_never_passes_what_is_neither_held_nor_explained",
        ),
    ),
    Mutant(
        "complete-over-hole",
        "an hour is certified `complete` though something of it is missing",
        "codec/backhaul_codec/certificates.py",
        '"waiting" if missing or open_ended else',
        '"waiting" if open_ended else',
        named(
            "tests/codec/test_certificates.py",
            "test_a_hole_makes_its_hour_wait_and_no_other",
            "test_never_complete_over_a_hole",
        ),
    ),
    Mutant(
        "older-head-stays",
        "of two values of a head the older one stays",
        "codec/backhaul_codec/merge.py",
        "winner = b if _compare(b, a) > 0 else a",
        "winner = b if _compare(b, a) < 0 else a",
        named("tests/codec/test_merge.py", "test_neither_time_nor_tombstone_goes_back"),
    ),
    Mutant(
        "repeat-kept",
        "what the table holds already counts as new when it comes again",
        "spark/backhaul_spark/coverage.py",
        "        repeated[rows[held]] = True\n",
        "",
        named(
            "tests/spark/test_coverage.py",
            "test_each_identity_is_new_once_and_its_first_message_is_the_one_kept",
        )
        + named("tests/spark/test_ingest.py", "test_repeats_are_known_after_a_restart"),
    ),
    Mutant(
        "batch-done-before-its-data",
        "ingest commits a batch's number before its points",
        "spark/backhaul_spark/ingest.py",
        "        number = self.tables.next_ingest\n        messages = pa.",
        "        self.tables.commit_points([], app, batch)\n"
        "        number = self.tables.next_ingest\n        messages = pa.",
        named("tests/spark/test_ingest.py", "test_killed_at_any_step_every_point_is_there_once"),
    ),
    Mutant(
        "gap-in-silence",
        "the source skips what is deleted in a range of a stream, and no row says so",
        "spark/backhaul_spark/source.py",
        "for lo, hi in holes(part.seqs, expected):",
        "for lo, hi in holes(part.seqs[:1], part.seqs[0]):",
        named(
            "tests/spark/test_direct_get.py", "test_deleted_messages_inside_a_range_are_a_gap_row"
        ),
    ),
    Mutant(
        "wrong-token",
        "the twins' changes are saved under a token that is not theirs",
        "spark/backhaul_spark/rules/kept.py",
        "token = _token(at.token, changes)",
        "token = at.token",
        named(
            "tests/spark/rules/test_kept.py",
            "test_any_worker_goes_on_where_another_was",
            "test_a_batch_that_failed_is_not_remembered",
        ),
    ),
)
