// Conflicts: what vehicle and hub both wrote without knowing of each other, to be reverted or accepted.
import { ask } from "../../hub/ask";
import { mayDo } from "../../hub/session";
import { encodeToken } from "../../hub/subjects";
import { valueText } from "../../logic/text";
import { nameOf, seriesOf } from "../../logic/values";
import { Ago } from "../../parts/Ago";
import { Badge } from "../../parts/Badge";
import { Switch } from "../../parts/forms";
import { Panel } from "../../parts/Panel";
import { Awaited, Empty, Failure } from "../../parts/States";
import { useAsked, useDoing, useHeard } from "../../state/asked";
import { filter, route } from "../../state/route";

interface Side {
  time: number;
  value: unknown;
  tombstone: boolean;
  origin: string;
}

interface Conflict {
  id: number;
  node: string;
  type: string;
  key: string;
  noticed_ns: number;
  winner: Side;
  loser: Side;
  resolved_ns?: number;
  resolution?: string;
  resolved_by?: string;
}

export function Conflicts({ device }: { device: string }) {
  const settled = route.value.filters["conflicts"] === "settled";
  const asked = useAsked<{ conflicts: Conflict[] }>("conflicts", { device, settled });
  const doing = useDoing();
  // A conflict has no subject of its own: `meta` of the shadow names it as it is noticed.
  useHeard([`${encodeToken(device)}.$.shadow.meta`], asked.again);
  const settle = (id: number, accept: boolean): void => {
    void doing.run(() => ask("revert", { id, accept })).then((done) => done && asked.again());
  };
  const conflicts = [...(asked.value?.conflicts ?? [])].reverse();
  return (
    <Panel
      title="Conflicts"
      tools={
        <Switch
          label="Conflicts"
          value={settled ? "settled" : "open"}
          choices={[
            { value: "open", text: "Not settled" },
            { value: "settled", text: "All" },
          ]}
          onChange={(value) => filter({ conflicts: value === "settled" ? "settled" : "" })}
        />
      }
    >
      <Awaited of={asked} what="conflicts" />
      {doing.error && <Failure error={doing.error} />}
      {asked.value !== null && conflicts.length === 0 && <Empty>No conflicts{settled ? "" : " that nobody has settled"}.</Empty>}
      <ul class="cards">
        {conflicts.map((each) => (
          <li key={each.id} class="card">
            <h3 class="break">{nameOf(seriesOf(each))}</h3>
            <dl class="pairs">
              <dt>Stands</dt>
              <dd>
                <SideText side={each.winner} />
              </dd>
              <dt>Lost</dt>
              <dd>
                <SideText side={each.loser} />
              </dd>
              <dt>Noticed</dt>
              <dd>
                <Ago ms={each.noticed_ns / 1e6} /> ago
              </dd>
            </dl>
            {each.resolved_ns ? (
              <Badge tone="good">
                {each.resolution} by {each.resolved_by}
              </Badge>
            ) : (
              mayDo("write") && (
                <div class="row-buttons">
                  <button type="button" disabled={doing.busy} onClick={() => settle(each.id, false)}>
                    Write {short(each.loser)} again
                  </button>
                  <button type="button" disabled={doing.busy} onClick={() => settle(each.id, true)}>
                    Let {short(each.winner)} stand
                  </button>
                </div>
              )
            )}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function SideText({ side }: { side: Side }) {
  return (
    <>
      <strong class="break">{side.tombstone ? "deleted" : valueText(side.value)}</strong>{" "}
      <span class="quiet">
        by {side.origin || "the vehicle"}, <Ago ms={side.time / 1e6} /> ago
      </span>
    </>
  );
}

function short(side: Side): string {
  if (side.tombstone) return "the deletion";
  const text = valueText(side.value);
  return `“${text.length > 24 ? `${text.slice(0, 24)}…` : text}”`;
}
