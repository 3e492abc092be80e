// All vehicles: which hours are complete, how each is, where it is.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask } from "../hub/ask";
import { feedFleet, type FleetFeed } from "../hub/fleet_feed";
import { session } from "../hub/session";
import { numberText } from "../logic/text";
import { HeatMap } from "../parts/HeatMap";
import { Form, Search, Select } from "../parts/forms";
import { Panel } from "../parts/Panel";
import { RangePicker } from "../parts/RangePicker";
import { Empty, Failure, Loading } from "../parts/States";
import { chosen, completePart, counts, groupsOf, heatRows, type Filter, type Show } from "../state/fleet";
import { filter, go, route } from "../state/route";
import { FleetMap } from "./FleetMap";
import { FleetTable } from "./FleetTable";

const BATTERY = "battery.soc";
const SERIES_MAX = 4;

export function Fleet() {
  const { range, filters, series } = route.value;
  const shown = series.length > 0 ? series : [filters["values"] === "none" ? "" : BATTERY].filter(Boolean);
  const position = [filters["lat"] || "gps.lat", filters["lon"] || "gps.lon"];
  const feed = useFeed([...shown, ...position]);
  if (feed === null) return <Loading what="the fleet" />;
  return <Shown feed={feed} series={shown} position={position} key={JSON.stringify(range)} />;
}

/** Return what keeps the fleet up to date; another range or series begins anew, with what is known already. */
function useFeed(series: readonly string[]): FleetFeed | null {
  const { range } = route.value;
  const [feed, setFeed] = useState<FleetFeed | null>(null);
  const last = useRef<FleetFeed | null>(null);
  const who = session.value;
  const key = JSON.stringify([series, range, who?.name]);
  useEffect(() => {
    const toMs = range.kind === "between" ? range.toMs : null;
    const fromMs = range.kind === "between" ? range.fromMs : Date.now() - range.seconds * 1000;
    const begun = feedFleet({ series, fromMs, toMs }, last.current ?? undefined);
    last.current = begun;
    setFeed(begun);
    return () => begun.end();
  }, [key]);
  return feed;
}

interface ShownProps {
  feed: FleetFeed;
  series: readonly string[];
  position: readonly string[];
}

function Shown({ feed, series, position }: ShownProps) {
  const { filters, range } = route.value;
  const fleet = feed.fleet.value;
  const hours = feed.hours.value;
  const by: Filter = {
    text: filters["text"] ?? "",
    group: filters["group"] ?? "",
    show: (filters["show"] ?? "") as Show,
  };
  const scoped = useMemo(() => chosen(fleet, hours, { ...by, show: "" }), [fleet, hours, by.text, by.group]);
  const rows = useMemo(() => (by.show ? chosen(fleet, hours, by) : scoped), [scoped, by.show]);
  const counted = useMemo(() => counts(scoped, hours), [scoped, hours]);
  const { heat, part } = useHeat(rows.map((each) => each.device).join("\n"), feed, by);
  const groups = useMemo(() => groupsOf(fleet), [fleet]);
  const failed = feed.failed.value;

  return (
    <>
      <h1 class="aside">Fleet</h1>
      {failed && <Failure error={failed} />}
      <div class="filters" role="search">
        <Search label="Search" value={by.text} onInput={(text) => filter({ text })} />
        {groups.length > 0 && (
          <Select
            label="Group"
            value={by.group}
            choices={[{ value: "", text: "All" }, ...groups.map((each) => ({ value: each, text: each }))]}
            onChange={(group) => filter({ group })}
          />
        )}
        <RangePicker range={range} onChange={(range) => go({ range })} />
      </div>
      <Tallies counted={counted} show={by.show} whole={feed.whole.value} />
      <Panel
        title="Completeness"
        tools={part !== null && <span class="number quiet">{`${numberText(Math.floor(part * 1000) / 10)} % of hours complete`}</span>}
      >
        {hours === null && !failed && <Loading what="hours" />}
        {hours !== null && heat.length === 0 && <NoRows whole={feed.whole.value} any={fleet.size > 0} />}
        {hours !== null && heat.length > 0 && (
          <HeatMap
            label="Hours of each device"
            rows={heat}
            fromMs={hours.fromMs}
            hours={hours.hours}
            onOpen={(device) => go({ screen: "device", device })}
          />
        )}
      </Panel>
      <div class="fleet-columns">
        <FleetTable rows={rows} series={series} whole={feed.whole.value} tools={<Values shown={series} />} />
        <FleetMap rows={rows} position={position} />
      </div>
    </>
  );
}

/**
 * Return the heat map's rows, and the part of their hours that is complete. Both are found anew when hours or the
 * devices shown are others, not with each value.
 */
function useHeat(devices: string, feed: FleetFeed, by: Filter) {
  const hours = feed.hours.value;
  return useMemo(() => {
    if (hours === null) return { heat: [], part: null };
    const rows = chosen(feed.fleet.peek(), hours, by);
    const nowMs = Date.now();
    return { heat: heatRows(rows, hours, nowMs), part: completePart(rows, hours, nowMs) };
  }, [devices, hours]);
}

function NoRows({ whole, any }: { whole: boolean; any: boolean }) {
  if (!whole) return <Loading what="devices" />;
  if (any) return <Empty>No device matches this filter.</Empty>;
  return (
    <Empty>
      There is no device yet. On the hub: <code>backhaul-hub enrol VID-001</code>
    </Empty>
  );
}

const SHOWS: readonly [Exclude<Show, "">, string][] = [
  ["down", "not connected"],
  ["errors", "with errors"],
  ["warnings", "with warnings"],
  ["waiting", "waiting for data"],
];

function Tallies({ counted, show, whole }: { counted: ReturnType<typeof counts>; show: Show; whole: boolean }) {
  return (
    <div class="tallies" role="group" aria-label="Counts">
      <button type="button" aria-pressed={show === ""} onClick={() => filter({ show: "" })}>
        <strong class="number">{counted.devices.toLocaleString("en")}</strong>
        {whole ? "devices" : "devices so far"}
      </button>
      <p>
        <strong class="number">{counted.up.toLocaleString("en")}</strong>connected
      </p>
      {SHOWS.map(([each, words]) => (
        <button
          key={each}
          type="button"
          class={counted[each] > 0 ? each : "none"}
          aria-pressed={show === each}
          onClick={() => filter({ show: show === each ? "" : each })}
        >
          <strong class="number">{counted[each].toLocaleString("en")}</strong>
          {words}
        </button>
      ))}
    </div>
  );
}

/** Which series the table shows: one is added by name, one is taken away by its button. */
function Values({ shown }: { shown: readonly string[] }) {
  const [known, setKnown] = useState<readonly string[]>([]);
  const [text, setText] = useState("");
  const load = (): void => {
    if (known.length > 0) return;
    ask<{ series: { series: string }[] }>("series").then(
      (told) => setKnown(told.series.map((each) => each.series)),
      () => setKnown([]),
    );
  };
  const set = (series: readonly string[]): void => {
    go({ series });
    filter({ values: series.length === 0 ? "none" : "" });
  };
  const add = (name: string): void => {
    if (!/^[^.\s]+\.[^.\s]+(\.[^.\s]+)?$/.test(name) || shown.includes(name)) return;
    setText("");
    set([...shown, name].slice(-SERIES_MAX));
  };
  return (
    <Form class="values" onSend={() => add(text)}>
      {shown.map((each) => (
        <button key={each} type="button" title={`Take ${each} away`} onClick={() => set(shown.filter((one) => one !== each))}>
          {each} <span aria-hidden="true">×</span>
        </button>
      ))}
      <input
        list="series-known"
        aria-label="Show another series, as in battery.soc"
        placeholder="add a series"
        value={text}
        onFocus={load}
        onInput={(event) => {
          const value = event.currentTarget.value;
          setText(value);
          if (known.includes(value)) add(value);
        }}
      />
      <datalist id="series-known">
        {known.map((each) => (
          <option key={each} value={each} />
        ))}
      </datalist>
    </Form>
  );
}

