// Hours that the hub does not hold all of, and why; and what it will never get.
import { timeText } from "../logic/text";
import { givenUpText, hourWhy, type WaitingAnswer } from "../logic/vehicle";
import { At } from "../parts/Ago";
import { Panel } from "../parts/Panel";
import { Awaited, Empty } from "../parts/States";
import { bytesText } from "../state/health";
import { useAsked } from "./asked";
import { status, vehicleNow } from "./vehicle";

const AGAIN_MS = 5000;
const ROWS_MAX = 200;

export function HoursTab() {
  const asked = useAsked<WaitingAnswer>("waiting", AGAIN_MS);
  const told = status.value;
  const hours = asked.value?.hours ?? [];
  const given = asked.value?.given_up ?? [];
  const more = hours.length - ROWS_MAX + (asked.value?.hours_more ?? 0);
  return (
    <div class="stack">
      <Panel title="Hours that are not complete at the hub" tools={<span class="quiet small">{hours.length} hours</span>}>
        <Awaited of={asked} what="hours" />
        {asked.value !== null && hours.length === 0 && (
          <Empty>The hub has confirmed all that this vehicle's ledger knows of.</Empty>
        )}
        {hours.length > 0 && told !== null && (
          <ul class="hours" tabIndex={0} aria-label="Hours and why they are not complete">
            {hours.slice(0, ROWS_MAX).map((each) => (
              <li key={each.from_ns} data-hour={each.from_ns / 1e6}>
                <At ms={each.from_ns / 1e6} />
                <span class="hour-state of-waiting">waiting</span>
                <span class="break">
                  {each.messages.toLocaleString("en")} {each.messages === 1 ? "message" : "messages"}, {bytesText(each.bytes)}:{" "}
                  {hourWhy(each, told, vehicleNow.value * 1e6)}
                </span>
              </li>
            ))}
            {more > 0 && <li class="quiet">and {more} earlier ones</li>}
          </ul>
        )}
      </Panel>
      <Panel title="Given up" tools={<span class="quiet small">{given.length}</span>}>
        {given.length === 0 ? (
          <Empty>Nothing was given up: the hub gets all of it.</Empty>
        ) : (
          <ul class="hours" tabIndex={0} aria-label="What was given up">
            {given.map((each) => (
              <li key={`${each.lane}:${each.epoch}:${each.lo}`}>
                <span class="number small quiet">epoch {each.epoch}</span>
                <span class="hour-state of-explained">explained</span>
                <span class="break">{givenUpText(each, timeText)}</span>
              </li>
            ))}
          </ul>
        )}
      </Panel>
    </div>
  );
}
