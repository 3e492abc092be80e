// What happened on the vehicle: commands that ran, and events.
import { useState } from "preact/hooks";
import { isOver, stateOf, type Command } from "../logic/commands";
import { durationText, valueText } from "../logic/text";
import { Ago, At } from "../parts/Ago";
import { Badge } from "../parts/Badge";
import { Select } from "../parts/forms";
import { Panel } from "../parts/Panel";
import { Awaited, Empty } from "../parts/States";
import { TimeLine } from "../parts/TimeLine";
import { useAsked } from "./asked";
import { ahead, vehicleNow } from "./vehicle";

const AGAIN_MS = 4000;
const MEANS: Record<string, Command["state"]> = { waiting: "sent", running: "accepted" };

interface Told {
  id: string;
  name: string;
  sent_ns: number;
  deadline_ns: number;
  ended_ns: number | null;
  state: string;
  code: string;
  error: string;
  result: unknown;
  runs: number;
}

export function CommandsTab() {
  const asked = useAsked<{ commands: Told[] }>("commands", AGAIN_MS);
  const commands = asked.value?.commands ?? [];
  return (
    <Panel title="Commands that came" tools={<span class="quiet small">the newest 100</span>}>
      <Awaited of={asked} what="commands" />
      {asked.value !== null && commands.length === 0 && <Empty>No command has come to this vehicle.</Empty>}
      <ol class="commands">
        {commands.map((each) => (
          <CommandRow key={each.id} told={each} />
        ))}
      </ol>
    </Panel>
  );
}

function CommandRow({ told }: { told: Told }) {
  const command = { ...told, state: MEANS[told.state] ?? told.state } as unknown as Command;
  const { word, tone, means } = stateOf(command);
  const over = isOver(command);
  const shown = told.state === "waiting" ? "waiting" : word;
  return (
    <li class="command" data-command={told.id} data-state={told.state}>
      <div class="command-head">
        <strong class="break">{told.name}</strong>
        <Badge tone={tone} title={told.state === "waiting" ? "it was not started yet" : means}>
          {shown}
        </Badge>
        <span class="quiet small">
          {over && told.ended_ns !== null ? (
            <>
              ended <At ms={told.ended_ns / 1e6} />
            </>
          ) : (
            <>
              sent <Ago ms={told.sent_ns / 1e6 - ahead.value} /> ago
            </>
          )}
          {told.runs > 1 && `, started ${told.runs} times`}
        </span>
      </div>
      {!over && (
        <p class="small">
          {told.deadline_ns / 1e6 > vehicleNow.value
            ? `starts within ${durationText((told.deadline_ns / 1e6 - vehicleNow.value) / 1000)}, or not at all`
            : "its deadline has passed"}
        </p>
      )}
      {told.error && (
        <p class="small break">
          {told.error}
          {told.code && <span class="quiet"> ({told.code})</span>}
        </p>
      )}
      {told.result !== null && told.result !== undefined && (
        <p class="small">
          <code class="break">{valueText(told.result)}</code>
        </p>
      )}
    </li>
  );
}

interface VehicleEvent {
  time: number;
  kind: string;
  by: string;
  previous?: string;
  reason?: string;
  data?: unknown;
}

export function EventsTab() {
  const asked = useAsked<{ events: VehicleEvent[] }>("events", AGAIN_MS);
  const [by, setBy] = useState("");
  const events = (asked.value?.events ?? []).filter((each) => !by || each.by === by);
  const times = events.map((each) => each.time / 1e6);
  return (
    <Panel title="Events" tools={<span class="quiet small">the newest 100 that the ledger has</span>}>
      <Awaited of={asked} what="events" />
      {asked.value !== null && (
        <>
          <div class="filters">
            <Select
              label="Reported by"
              value={by}
              choices={[
                { value: "", text: "all" },
                { value: "program", text: "programs" },
                { value: "agent", text: "agent" },
              ]}
              onChange={setBy}
            />
          </div>
          {events.length === 0 ? (
            <Empty>No events.</Empty>
          ) : (
            <TimeLine
              label="Events"
              fromMs={Math.min(...times) - 1000}
              toMs={Math.max(vehicleNow.value, ...times)}
              events={events.map((each, at) => ({
                id: `${each.time}:${at}`,
                ms: each.time / 1e6,
                kind: each.kind,
                tone: "info",
                text: eventText(each),
              }))}
            />
          )}
        </>
      )}
    </Panel>
  );
}

function eventText(event: VehicleEvent): string {
  const said = [event.previous ? `after ${event.previous}` : "", event.reason ?? ""];
  if (event.data !== undefined && event.data !== null) said.push(valueText(event.data));
  return said.filter(Boolean).join(" · ");
}
