// Events of a device on a line of time, live, and the hours in which some may be missing.
import { useMemo } from "preact/hooks";
import { encodeToken } from "../../hub/subjects";
import { eventId, eventText, toneOf, withEvent, type DeviceEvent } from "../../logic/events";
import { now } from "../../parts/Ago";
import { Select } from "../../parts/forms";
import { Panel } from "../../parts/Panel";
import { Awaited, Empty } from "../../parts/States";
import { TimeLine } from "../../parts/TimeLine";
import { useAsked, useHeard } from "../../state/asked";
import { filter, route } from "../../state/route";
import { bounds, formatRange } from "../../state/time";

const LIMIT = 1000;

interface Answer {
  events: DeviceEvent[];
  /** Events that fit too, and are older. */
  earlier: number;
  hours: Record<string, { not_complete: string[] }>;
}

export function Events({ device }: { device: string }) {
  const { range, filters } = route.value;
  const { fromMs, toMs } = bounds(range, now.value);
  const since = useMemo(() => Math.floor(bounds(range, Date.now()).fromMs), [formatRange(range)]);
  const asked = useAsked<Answer>("events", { device, since_ns: since * 1e6, limit: LIMIT });
  useHeard([`${encodeToken(device)}.$.event.*`], (_, payload) =>
    asked.change((answer) => ({ ...answer, events: withEvent(answer.events, payload as DeviceEvent) })),
  );
  const events = useMemo(
    () => [...(asked.value?.events ?? [])].sort((a, b) => b.time - a.time),
    [asked.value],
  );
  const kinds = [...new Set(events.map((each) => each.kind))].sort();
  const kind = filters["kind"] ?? "";
  const shown = events.filter((each) => !kind || each.kind === kind);
  const doubtful = asked.value?.hours[device]?.not_complete ?? [];
  return (
    <Panel title="Events" tools={asked.value && <span class="quiet small">{shown.length} in this time</span>}>
      <Awaited of={asked} what="events" />
      {asked.value !== null && (
        <>
          <div class="filters">
            <Select
              label="Kind"
              value={kind}
              choices={[{ value: "", text: "all kinds" }, ...kinds.map((each) => ({ value: each, text: each }))]}
              onChange={(value) => filter({ kind: value })}
            />
          </div>
          {shown.length === 0 ? (
            <Empty>No events in this time.</Empty>
          ) : (
            <TimeLine
              label={`Events of ${device}`}
              fromMs={fromMs}
              toMs={toMs}
              events={shown.map((each) => ({
                id: eventId(each),
                ms: each.time / 1e6,
                kind: each.kind,
                tone: toneOf(each),
                text: eventText(each),
              }))}
              rowsMax={200}
            />
          )}
          {asked.value.earlier > 0 && (
            <p class="quiet small">{asked.value.earlier} older events of this time are not shown: choose a shorter time.</p>
          )}
          {doubtful.length > 0 && (
            <p class="quiet small">
              In {doubtful.length} {doubtful.length === 1 ? "hour" : "hours"} of this time events may be missing; the part Hours says why.
            </p>
          )}
        </>
      )}
    </Panel>
  );
}
