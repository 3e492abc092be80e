// The hub itself: what is wrong and what mends it, streams, shards, sources, readers.
import { link } from "../hub/connection";
import { session } from "../hub/session";
import { durationText, numberText } from "../logic/text";
import { Ago, now } from "../parts/Ago";
import { Badge } from "../parts/Badge";
import { Conditions } from "../parts/Conditions";
import { Fact } from "../parts/Fact";
import { Panel } from "../parts/Panel";
import { numbered, PlainTable } from "../parts/PlainTable";
import { Empty, Failure, Loading } from "../parts/States";
import { useAsked } from "../state/asked";
import { bytesText, part, standText, type Health, type JobStand, type Stream } from "../state/health";
import { href } from "../state/route";

const EVERY_MS = 5_000;

export function System() {
  if (session.value?.group !== "fleet")
    return (
      <>
        <h1 class="aside">System</h1>
        <Empty>The hub itself is for people who see all of the fleet.</Empty>
      </>
    );
  return <Watched />;
}

function Watched() {
  const { value: health, error } = useAsked<Health>("health", {}, EVERY_MS);
  if (health === null) return error ? <Failure error={error} /> : <Loading what="the hub's health" />;
  return (
    <>
      <h1 class="aside">System</h1>
      {error && <Failure error={error} />}
      <Facts health={health} />
      <ConditionsPanel health={health} />
      <div class="system-columns">
        <Streams health={health} />
        <div>
          <Shards health={health} />
          <Jobs health={health} />
          <Consumers health={health} />
        </div>
      </div>
    </>
  );
}

function Facts({ health }: { health: Health }) {
  const started = health.control.since_ns / 1e6;
  return (
    <dl class="facts">
      <Fact name="Control plane" value={health.control.version}>
        up {durationText((now.value - started) / 1000)}
      </Fact>
      <Fact name="Devices" value={health.devices.toLocaleString("en")}>
        {health.connected.toLocaleString("en")} connected
      </Fact>
      <Fact name="JetStream" value={health.jetstream ? "answers" : "silent"}>
        {health.streams.length} streams
      </Fact>
      <Fact name="Sources lag" value={numberText(health.sources.lag_messages)}>
        messages, in {health.sources.lagging} of {health.sources.lanes} lanes
      </Fact>
      <Fact name="This page" value={link.value === "up" ? "connected" : "no connection"}>
        looked {health.looked_ns ? <Ago ms={health.looked_ns / 1e6} /> : "not yet"} ago
      </Fact>
    </dl>
  );
}

function ConditionsPanel({ health }: { health: Health }) {
  const { conditions, conditions_not_shown: more } = health;
  return (
    <Panel title="Conditions" tools={<span class="quiet number">{conditions.length + more}</span>}>
      {conditions.length === 0 ? (
        <Empty>{health.looked_ns ? "All is well." : "The control plane has not looked yet."}</Empty>
      ) : (
        <Conditions of={conditions} device={(device) => <a href={href({ screen: "device", device })}>{device}</a>} />
      )}
      {more > 0 && <p class="quiet small">{more} more are not shown here: backhaul-hub status</p>}
    </Panel>
  );
}

function Streams({ health }: { health: Health }) {
  return (
    <Panel title="Streams">
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Streams">
        <PlainTable
          columns={[...numbered("Stream", "Messages", "Holds"), { title: "Of its room" }, { title: "Copies" }]}
          rows={health.streams.map((each) => ({
            key: each.stream,
            cells: [
              each.stream,
              each.messages.toLocaleString("en"),
              bytesText(each.bytes),
              <Meter stream={each.stream} used={part(each)} max={each.bytes_max} />,
              <Copies of={each} />,
            ],
          }))}
        />
      </div>
    </Panel>
  );
}

function Copies({ of: { leader, replicas } }: { of: Stream }) {
  if (replicas.length === 0) return <span class="quiet">one</span>;
  return (
    <span class="badges">
      <Badge tone="info" title="leader">
        {leader}
      </Badge>
      {replicas.map((replica) => (
        <Badge
          key={replica.name}
          tone={replica.current ? "good" : "critical"}
          title={replica.current ? "has all" : `${replica.lag} messages behind`}
        >
          {replica.name}
        </Badge>
      ))}
    </span>
  );
}

function Meter({ stream, used, max }: { stream: string; used: number | null; max: number }) {
  if (used === null) return <span class="quiet">no bound</span>;
  return (
    <span class="meter-of">
      <meter min={0} max={1} high={0.8} optimum={0} value={used} aria-label={`${stream} is full to`} />
      <span class="small quiet number">
        {numberText(Math.round(used * 1000) / 10)} % of {bytesText(max)}
      </span>
    </span>
  );
}

function Shards({ health }: { health: Health }) {
  return (
    <Panel title="Shards, as the control plane reads them">
      <PlainTable
        columns={numbered("Shard", "Read up to", "Behind", "Set aside")}
        rows={health.shards.map((each) => ({
          key: each.stream,
          cells: [each.stream, ...[each.read_seq, each.behind, each.quarantined].map((count) => count.toLocaleString("en"))],
        }))}
      />
    </Panel>
  );
}

/** From when on a job that is behind and does not move is marked, in seconds; the hub's condition comes later. */
const STILL_S = 300;

function Jobs({ health: { jobs } }: { health: Health }) {
  return (
    <Panel
      title="Spark jobs"
      tools={
        jobs.looked_ns > 0 && (
          <span class="quiet small">
            looked <Ago ms={jobs.looked_ns / 1e6} /> ago
          </span>
        )
      }
    >
      {jobs.looked_ns === 0 ? (
        <Empty>
          Nobody tells how far the jobs are. Beside the tables: <code>backhaul-spark serve-history</code>
        </Empty>
      ) : jobs.jobs.length + jobs.tables.length === 0 ? (
        <Empty>No job has run beside these tables yet.</Empty>
      ) : (
        <PlainTable
          columns={[...numbered("Job or table", "Behind"), { title: "Since" }]}
          rows={[
            ...jobs.jobs.map((each) => ({ key: each.job, data: { "data-job": each.job }, cells: [each.job, standText(each), <Stand of={each} />] })),
            ...jobs.tables.map((each) => ({
              key: each.table,
              cells: [
                <>
                  <span class="quiet">table</span> {each.table}
                </>,
                <span class="quiet">written</span>,
                <span class="number">
                  <Ago ms={each.written_ns / 1e6} /> ago
                </span>,
              ],
            })),
          ]}
        />
      )}
    </Panel>
  );
}

function Stand({ of }: { of: JobStand }) {
  if (of.behind === 0) return <Badge tone="good">up to date</Badge>;
  if (of.still_s > STILL_S) return <Badge tone="critical">stands still for {durationText(of.still_s)}</Badge>;
  return <Badge tone="info">at work</Badge>;
}

function Consumers({ health }: { health: Health }) {
  return (
    <Panel title="Durable readers">
      {health.consumers.length === 0 ? (
        <Empty>No job reads a stream by a durable consumer.</Empty>
      ) : (
        <PlainTable
          columns={[{ title: "Reader", class: "break" }, ...numbered("", "Behind", "Not acknowledged").slice(1)]}
          rows={health.consumers.map((each) => ({
            key: `${each.stream}/${each.consumer}`,
            cells: [
              <>
                {each.consumer} <span class="quiet">of {each.stream}</span>
              </>,
              each.pending.toLocaleString("en"),
              each.ack_pending.toLocaleString("en"),
            ],
          }))}
        />
      )}
    </Panel>
  );
}
