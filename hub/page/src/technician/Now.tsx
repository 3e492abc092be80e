// The vehicle at one look: link and why it is down, what waits for the hub, what is wrong and what mends it.
import { durationText } from "../logic/text";
import { laneWhy, linkStory, total, type VehicleStatus, type WaitingAnswer } from "../logic/vehicle";
import { Ago } from "../parts/Ago";
import { Badge } from "../parts/Badge";
import { Conditions } from "../parts/Conditions";
import { Fact } from "../parts/Fact";
import { Hint } from "../parts/Hint";
import { Panel } from "../parts/Panel";
import { numbered, PlainTable } from "../parts/PlainTable";
import { Empty, Failure, Loading } from "../parts/States";
import { bytesText } from "../state/health";
import { useAsked, type Asked } from "./asked";
import { ahead, status } from "./vehicle";

const MODES: Record<string, string> = {
  always: "should always be up",
  scheduled: "comes up by a schedule",
  "on-demand": "comes up on demand",
};
const AGAIN_MS = 5000;

export function Now() {
  const waiting = useAsked<WaitingAnswer>("waiting", AGAIN_MS);
  const told = status.value;
  if (told === null) return <Loading what="the vehicle's state" />;
  return (
    <>
      <Facts told={told} waiting={waiting.value} />
      <div class="now-columns">
        <Link told={told} />
        <Panel title="Conditions" tools={<span class="quiet number">{told.conditions.length}</span>}>
          {told.conditions.length === 0 ? <Empty>All is well.</Empty> : <Conditions of={told.conditions} aheadMs={ahead.value} />}
        </Panel>
        <Lanes told={told} waiting={waiting} />
      </div>
    </>
  );
}

function Facts({ told, waiting }: { told: VehicleStatus; waiting: WaitingAnswer | null }) {
  const story = linkStory(told);
  const sum = total(waiting);
  const share = (100 * told.ledger.bytes) / told.ledger.bytes_max;
  const refused = Object.values(told.counters.refused).reduce((all, each) => all + each, 0);
  return (
    <dl class="facts">
      <Fact name="Link to the hub" value={story.word}>
        {MODES[told.link.mode] ?? told.link.mode}
      </Fact>
      <Fact name="Waits for the hub" value={sum === null ? "…" : `${sum.messages.toLocaleString("en")} messages`}>
        {sum === null ? "" : bytesText(sum.bytes)}
        {sum !== null && sum.oldestNs !== null && (
          <>
            , oldest <Ago ms={sum.oldestNs / 1e6 - ahead.value} />
          </>
        )}
      </Fact>
      <Fact name="Ledger" value={`${share < 1 && share > 0 ? "under 1" : Math.round(share)} % full`}>
        {bytesText(told.ledger.bytes)} of {bytesText(told.ledger.bytes_max)}
        {told.ledger.evicted_messages > 0 && `, ${told.ledger.evicted_messages.toLocaleString("en")} given up`}
      </Fact>
      <Fact name="Readings kept" value={told.counters.points_kept.toLocaleString("en")}>
        since the start{refused > 0 ? `, ${refused.toLocaleString("en")} refused` : ""}
      </Fact>
      <Fact name="Clock" value={told.clock.quality}>
        {{ synced: "as the hub's", holdover: "kept from before", unset: "nobody has told the time yet" }[told.clock.quality] ?? ""}
      </Fact>
      <Fact name="Agent" value={`up ${durationText(told.uptime_s)}`}>
        {bytesText(told.memory_bytes_max)} at most
      </Fact>
    </dl>
  );
}

function Link({ told }: { told: VehicleStatus }) {
  const story = linkStory(told);
  return (
    <Panel title="Link" class="link-panel" tools={<Badge tone={story.tone}>{story.word}</Badge>}>
      <p data-link={told.link.up === null ? "unknown" : told.link.up ? "up" : "down"}>{story.why}</p>
      {story.mend && <Hint text={story.mend} />}
    </Panel>
  );
}

function Lanes({ told, waiting }: { told: VehicleStatus; waiting: Asked<WaitingAnswer> }) {
  const sums = waiting.value?.lanes ?? [];
  const names = [...new Set([...Object.keys(told.lanes), ...sums.map((each) => each.lane)])];
  const staged = told.ledger.staged_points;
  return (
    <Panel title="What waits in the ledger" class="lanes-panel">
      {waiting.error && <Failure error={waiting.error} onRetry={waiting.again} />}
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Lanes">
        <PlainTable
          class="lanes"
          columns={[
            { title: "Lane", class: "break" },
            ...numbered("", "Messages", "Size").slice(1),
            { title: "Oldest", class: "end" },
            { title: "Why", class: "why" },
          ]}
          rows={names.map((name) => {
            const lane = told.lanes[name];
            const some = sums.filter((each) => each.lane === name);
            const oldest = some.flatMap((each) => (each.oldest_ns === null ? [] : [each.oldest_ns]));
            return {
              key: name,
              data: { "data-lane": name },
              cells: [
                name,
                some.reduce((all, each) => all + each.messages, 0).toLocaleString("en"),
                bytesText(some.reduce((all, each) => all + each.bytes, 0)),
                oldest.length > 0 ? <Ago ms={Math.min(...oldest) / 1e6 - ahead.value} /> : "–",
                (lane && laneWhy(lane, told)) || <span class="quiet">the hub holds all of it</span>,
              ],
            };
          })}
        />
      </div>
      {staged > 0 && (
        <p class="small quiet">
          {staged.toLocaleString("en")} {staged === 1 ? "reading is" : "readings are"} kept, and will be in the next message.
        </p>
      )}
    </Panel>
  );
}
