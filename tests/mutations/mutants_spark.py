"""Planted bugs of the rules' order and of the fleet's findings."""

from __future__ import annotations

from tests.mutations.mutant import Mutant, named

_CUTS = "tests/spark/rules/test_cuts.py"

SPARK_MUTANTS = (
    Mutant(
        "threshold-for-the-batch",
        "a threshold counts for all samples of the batch that it comes in",
        "spark/backhaul_spark/rules/engine.py",
        "self.heads[series][mine][after] = now[series][row]",
        "self.heads[series][mine] = now[series][row]",
        named(
            _CUTS,
            "test_a_threshold_counts_for_the_samples_that_were_stored_after_it_whatever_the_batch",
        ),
    ),
    Mutant(
        "threshold-read-ahead",
        "a threshold that was read before older samples counts for them",
        "spark/backhaul_spark/rules/twins.py",
        "due = since_ns <= until_ns or (",
        "due = True or (",
        named(_CUTS, "test_a_threshold_that_is_read_before_older_samples_waits_for_them"),
    ),
    Mutant(
        "samples-by-time",
        "a device's samples of a batch are taken by their times, and not as the hub stored them",
        "spark/backhaul_spark/rules/engine.py",
        'np.lexsort((samples["signal"], samples["time_ns"], place, row))',
        'np.lexsort((samples["signal"], place, samples["time_ns"], row))',
        named("tests/spark/rules/test_engine.py", "test_alerts_do_not_depend_on_where_batches_end"),
    ),
    Mutant(
        "backlog-hides-its-clock",
        "of a day that was handed over later, the clock is looked for on that day alone",
        "spark/backhaul_spark/fleet/survey.py",
        "ahead_in_a_backlog(late_lags)",
        "ahead_in_a_backlog(lags)",
        named(
            "tests/spark/fleet/test_job.py",
            "test_a_clock_that_is_ahead_while_its_days_come_as_a_backlog_is_no_drift",
        ),
    ),
    Mutant(
        "backlog-alone-hides-its-clock",
        "of a day that came as an old backlog alone, nobody compares the daily rhythm with the fleet's",
        "spark/backhaul_spark/fleet/survey.py",
        "judge.clocks([*wrong, *shown])",
        "judge.clocks(wrong)",
        named(
            "tests/spark/fleet/test_unjudged.py",
            "test_a_clock_that_is_ahead_shows_in_an_old_backlog_and_is_called_no_drift",
        ),
    ),
    Mutant(
        "unjudged-stays-unsaid",
        "the job prints the signals that it did not judge, and no table has them",
        "spark/backhaul_spark/fleet/job.py",
        "if changed or len(result) != len(known):",
        "if False:",
        named(
            "tests/spark/fleet/test_unjudged.py",
            "test_the_table_says_what_was_not_judged_until_it_is",
        ),
    ),
    Mutant(
        "deleted-reading-shown",
        "history shows readings that were deleted",
        "spark/backhaul_spark/query/series_points.py",
        "if not asked.deleted:",
        "if False:",
        named("tests/spark/test_series_points.py", "test_a_series_is_read_as_the_scanner_reads_it"),
    ),
)
