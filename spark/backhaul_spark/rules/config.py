"""twin.toml: which rules run, on which series, with which limits. docs/twin-actor.md lists the keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from backhaul_spark.config_file import SECTIONS, read_config, refuse_unknown
from backhaul_spark.decode.series import SeriesKey, parse_series
from backhaul_spark.errors import OptionError
from backhaul_spark.rules.catalog import known_rules
from backhaul_spark.rules.plan import SERIES_MAX, Plan
from backhaul_spark.rules.rule import Rule, Spoken

_Positive = Annotated[float, Meta(gt=0)]


class TwinSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section [twin]."""

    late_after_s: _Positive = 120.0
    snapshot_every_s: _Positive = 60.0
    forget_after_days: _Positive = 30.0
    tick_s: _Positive = 5.0
    grace_s: Annotated[float, Meta(ge=0)] = 60.0
    buckets: Annotated[int, Meta(ge=1, le=64)] = 8
    partitions: Annotated[int, Meta(ge=1, le=64)] = 1
    statistics: tuple[str, ...] = ("battery.soc", "battery.temp", "cpu.load")


def read_plan(path: str | None) -> Plan:
    """Read the file; without one everything is as it is by default.

    Raises:
        OptionError: it cannot be read, or says something that cannot be.
    """
    if path is None:
        return plan_from({}, "twin.toml")
    return plan_from(read_config(path), path)


def plan_from(values: Mapping[str, Any], where: str) -> Plan:
    """Return the plan that the file's values come to. `where` names the file in errors."""
    refuse_unknown(values, SECTIONS, where)
    twin = _section(values.get("twin", {}), TwinSection, f"{where}: [twin]")
    signals = _table(values.get("signals", {}), f"{where}: [signals]")
    kinds = known_rules()
    rules = _table(values.get("rules", {}), f"{where}: [rules]")
    refuse_unknown(rules, set(kinds), f"{where}: [rules]")
    places = {str(key): _series(text, f"{where}: [signals] {key}") for key, text in signals.items()}
    wanted = {
        text for kind in kinds.values() for text in (*kind.signals.values(), *kind.heads.values())
    }
    refuse_unknown(places, wanted | set(TwinSection().statistics), f"{where}: [signals]")
    made = [
        _rule(kind, rules.get(name, {}), f"{where}: [rules.{name}]") for name, kind in kinds.items()
    ]
    statistics = [_series(text, f"{where}: [twin] statistics") for text in twin.statistics]
    plan_rules = tuple(
        Spoken(rule, _series_of(rule.signals, places), _series_of(rule.heads, places))
        for rule in made
        if rule.settings.enabled
    )
    if not statistics or len(statistics) > SERIES_MAX // 2:
        raise OptionError(f"{where}: [twin] statistics", twin.statistics, "1 to 125 series")
    return Plan(
        rules=plan_rules,
        statistics=tuple(places.get(str(series), series) for series in statistics),
        late_after_s=twin.late_after_s,
        snapshot_every_s=twin.snapshot_every_s,
        forget_after_s=twin.forget_after_days * 86400,
        buckets=twin.buckets,
        partitions=twin.partitions,
        tick_s=twin.tick_s,
        grace_s=twin.grace_s,
    )


def _rule(kind: type[Rule], values: object, where: str) -> Rule:
    return kind(_section(values, kind.Settings, where))


def _series_of(names: Mapping[str, str], places: Mapping[str, SeriesKey]) -> dict[str, SeriesKey]:
    """Return where a rule's series are: where [signals] says, else where the rule itself does."""
    return {name: places.get(text) or parse_series(text) for name, text in names.items()}


def _section(values: object, kind: type[Any], where: str) -> Any:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise OptionError(where, values, str(error)) from error


def _table(values: object, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise OptionError(where, values, "a table")
    return values


def _series(text: object, where: str) -> SeriesKey:
    if not isinstance(text, str):
        raise OptionError(where, text, "a series such as battery.soc")
    return parse_series(text, where)
