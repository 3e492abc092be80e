// The hours of a device: how complete each is, and why it is not.
import { useMemo } from "preact/hooks";
import { codesOf, HOUR_STATES, STATE_WORDS, stateCode, untilOpen, type HeatRow, type HourState } from "../../logic/heat";
import { reasonsOf, type HourReport } from "../../logic/hours";
import { dayText } from "../../logic/text";
import { At, now } from "../../parts/Ago";
import { HeatMap } from "../../parts/HeatMap";
import { Select } from "../../parts/forms";
import { Panel } from "../../parts/Panel";
import { Awaited, Empty } from "../../parts/States";
import { useAsked } from "../../state/asked";
import { filter, route } from "../../state/route";
import { bounds, formatRange } from "../../state/time";

const HOUR_MS = 3_600_000;
const DAY_HOURS = 24;
const HOURS_MAX = 24 * 31;
const ROWS_MAX = 200;
/** Shown where no state is chosen: readings are missing, or may be. */
const DOUBTFUL: readonly HourState[] = ["waiting", "explained", "silent"];

interface Answer {
  from_ns: number;
  hours: number;
  devices: { device: string; hours: string; reports?: HourReport[] }[];
}

export function Hours({ device }: { device: string }) {
  const { range, filters } = route.value;
  const hourNow = Math.floor(now.value / HOUR_MS);
  const question = useMemo(() => {
    const { fromMs, toMs } = bounds(range, Date.now());
    const from = Math.max(dayBegin(fromMs), toMs - HOURS_MAX * HOUR_MS);
    return { device, from_ns: Math.floor(from / HOUR_MS) * HOUR_MS * 1e6, to_ns: Math.ceil(toMs) * 1e6 };
  }, [device, formatRange(range), hourNow]);
  const asked = useAsked<Answer>("hours", question);
  const found = asked.value?.devices[0];
  const fromMs = (asked.value?.from_ns ?? 0) / 1e6;
  const codes = useMemo(() => untilOpen(codesOf(found?.hours ?? ""), fromMs, hourNow * HOUR_MS), [found, hourNow]);
  const days = useMemo(() => byDays(codes, fromMs), [codes, fromMs]);
  const state = filters["state"] ?? "";
  const reports = [...(found?.reports ?? [])]
    .reverse()
    .filter((each) => hourOf(each, fromMs) < codes.length)
    .map((each) => ({ report: each, state: standing(each, codes, fromMs) }));
  const doubtful = reports.filter((each) => (state ? each.state === state : DOUBTFUL.includes(each.state)));
  return (
    <Panel title="Hours" tools={<span class="quiet small">{countText(codes)}</span>}>
      <Awaited of={asked} what="hours" />
      {found && days.rows.length === 0 && <Empty>No hours in this time.</Empty>}
      {found && days.rows.length > 0 && (
        <HeatMap label={`Hours of ${device}, a row a day`} rows={days.rows} fromMs={days.fromMs} hours={DAY_HOURS} ofDay rowHeight={22} />
      )}
      {found && (
        <>
          <div class="filters">
            <Select
              label="Hours"
              value={state}
              choices={[
                { value: "", text: "in doubt" },
                ...HOUR_STATES.slice(1).map((each) => ({ value: each, text: each })),
              ]}
              onChange={(value) => filter({ state: value })}
            />
          </div>
          {doubtful.length === 0 ? (
            <Empty>{state ? `No hour of this time is ${state}.` : "Every hour of this time that anybody has spoken of is complete."}</Empty>
          ) : (
            <ul class="hours" tabIndex={0} aria-label="Hours and why they are not complete">
              {doubtful.slice(0, ROWS_MAX).map(({ report, state }) => (
                <li key={report.hour}>
                  <At ms={Date.parse(report.hour)} />
                  <span class={`hour-state of-${state}`} title={STATE_WORDS[state]}>
                    {state}
                  </span>
                  <span class="break">{reasonsOf(report).join("; ") || STATE_WORDS[state]}</span>
                </li>
              ))}
              {doubtful.length > ROWS_MAX && <li class="quiet">and {doubtful.length - ROWS_MAX} earlier ones</li>}
            </ul>
          )}
        </>
      )}
    </Panel>
  );
}

function dayBegin(ms: number): number {
  const at = new Date(ms);
  return new Date(at.getFullYear(), at.getMonth(), at.getDate()).getTime();
}

/** Return a row for each day in the browser's zone, the newest first, each of 24 hours. */
function byDays(codes: Uint8Array, fromMs: number): { rows: HeatRow[]; fromMs: number } {
  const rows = new Map<string, HeatRow>();
  codes.forEach((code, at) => {
    const ms = fromMs + at * HOUR_MS;
    const day = dayText(ms);
    const row = rows.get(day) ?? { id: day, label: day, hours: new Uint8Array(DAY_HOURS) };
    row.hours[new Date(ms).getHours()] = code;
    rows.set(day, row);
  });
  return { rows: [...rows.values()].reverse(), fromMs: dayBegin(fromMs) };
}

/** Return an hour's state as the heat map has it: the letters tell silence, which reports call waiting. */
function standing(report: HourReport, codes: Uint8Array, fromMs: number): HourState {
  return HOUR_STATES[codes[hourOf(report, fromMs)] ?? stateCode(report.state)] ?? "none";
}

function hourOf(report: HourReport, fromMs: number): number {
  return Math.round((Date.parse(report.hour) - fromMs) / HOUR_MS);
}

function countText(codes: Uint8Array): string {
  const counted = HOUR_STATES.map((state, code) => [state, codes.filter((each) => each === code).length] as const);
  return counted
    .filter(([state, count]) => count > 0 && state !== "none")
    .map(([state, count]) => `${count} ${state}`)
    .join(", ");
}
