// The hub itself: what is wrong and what mends it, streams, shards, sources, readers.
import { useEffect, useState } from "preact/hooks";
import { ask, Refused } from "../hub/ask";
import { link } from "../hub/connection";
import { session } from "../hub/session";
import { durationText, numberText } from "../logic/text";
import { Ago, now } from "../parts/Ago";
import { Badge, type Tone } from "../parts/Badge";
import { Fact } from "../parts/Fact";
import { Hint } from "../parts/Hint";
import { Panel } from "../parts/Panel";
import { Empty, Failure, Loading } from "../parts/States";
import { bytesText, grouped, part, standText, type Health, type ShownCondition } from "../state/health";
import { href } from "../state/route";

const EVERY_MS = 5_000;
const TONES: Record<string, Tone> = { error: "critical", warning: "warning", info: "info" };

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
  const [health, setHealth] = useState<Health | null>(null);
  const [failed, setFailed] = useState<Refused | null>(null);
  useEffect(() => {
    let over = false;
    let timer = 0;
    const look = async (): Promise<void> => {
      try {
        if (!document.hidden) {
          const told = await ask<Health>("health");
          if (!over) setHealth(told);
        }
        if (!over) setFailed(null);
      } catch (error) {
        if (!over) setFailed(error instanceof Refused ? error : new Refused(String(error)));
      }
      if (!over) timer = window.setTimeout(() => void look(), EVERY_MS);
    };
    void look();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, []);
  if (health === null) return failed ? <Failure error={failed} /> : <Loading what="the hub's health" />;
  return (
    <>
      <h1 class="aside">System</h1>
      {failed && <Failure error={failed} />}
      <Facts health={health} />
      <Conditions health={health} />
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

function Conditions({ health }: { health: Health }) {
  const groups = grouped(health.conditions);
  return (
    <Panel title="Conditions" tools={<span class="quiet number">{health.conditions.length + health.conditions_not_shown}</span>}>
      {groups.length === 0 ? (
        <Empty>{health.looked_ns ? "All is well." : "The control plane has not looked yet."}</Empty>
      ) : (
        <ul class="conditions">
          {groups.map(({ first, all }) => (
            <li key={first.code}>
              <p>
                <Badge tone={TONES[first.severity] ?? "quiet"}>{first.severity}</Badge> <strong>{first.title}</strong>{" "}
                <code>{first.code}</code>
              </p>
              <Hint text={first.hint} />
              <Places of={all} />
            </li>
          ))}
        </ul>
      )}
      {health.conditions_not_shown > 0 && (
        <p class="quiet small">{health.conditions_not_shown} more are not shown here: backhaul-hub status</p>
      )}
    </Panel>
  );
}

const PLACES_MAX = 20;

function Places({ of }: { of: readonly ShownCondition[] }) {
  return (
    <ul class="condition-places small">
      {of.slice(0, PLACES_MAX).map((each, at) => (
        <li key={at}>
          {each.device && <a href={href({ screen: "device", device: each.device })}>{each.device}</a>} {each.about}{" "}
          <span class="quiet">
            {each.detail && `${each.detail}, `}since <Ago ms={each.since_ns / 1e6} />
          </span>
        </li>
      ))}
      {of.length > PLACES_MAX && <li class="quiet">and {of.length - PLACES_MAX} more</li>}
    </ul>
  );
}

function Streams({ health }: { health: Health }) {
  return (
    <Panel title="Streams">
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Streams">
        <table class="plain">
          <thead>
            <tr>
              <th>Stream</th>
              <th class="end">Messages</th>
              <th class="end">Holds</th>
              <th>Of its room</th>
              <th>Copies</th>
            </tr>
          </thead>
          <tbody>
            {health.streams.map((each) => (
              <tr key={each.stream}>
                <td>{each.stream}</td>
                <td class="end number">{each.messages.toLocaleString("en")}</td>
                <td class="end number">{bytesText(each.bytes)}</td>
                <td>
                  <Meter stream={each.stream} used={part(each)} max={each.bytes_max} />
                </td>
                <td>
                  {each.replicas.length === 0 ? (
                    <span class="quiet">one</span>
                  ) : (
                    <span class="badges">
                      <Badge tone="info" title="leader">
                        {each.leader}
                      </Badge>
                      {each.replicas.map((replica) => (
                        <Badge
                          key={replica.name}
                          tone={replica.current ? "good" : "critical"}
                          title={replica.current ? "has all" : `${replica.lag} messages behind`}
                        >
                          {replica.name}
                        </Badge>
                      ))}
                    </span>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
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
      <table class="plain">
        <thead>
          <tr>
            <th>Shard</th>
            <th class="end">Read up to</th>
            <th class="end">Behind</th>
            <th class="end">Set aside</th>
          </tr>
        </thead>
        <tbody>
          {health.shards.map((each) => (
            <tr key={each.stream}>
              <td>{each.stream}</td>
              <td class="end number">{each.read_seq.toLocaleString("en")}</td>
              <td class="end number">{each.behind.toLocaleString("en")}</td>
              <td class="end number">{each.quarantined.toLocaleString("en")}</td>
            </tr>
          ))}
        </tbody>
      </table>
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
        <table class="plain">
          <thead>
            <tr>
              <th>Job or table</th>
              <th class="end">Behind</th>
              <th>Since</th>
            </tr>
          </thead>
          <tbody>
            {jobs.jobs.map((each) => (
              <tr key={each.job} data-job={each.job}>
                <td>{each.job}</td>
                <td class="end number">{standText(each)}</td>
                <td>
                  {each.behind === 0 ? (
                    <Badge tone="good">up to date</Badge>
                  ) : each.still_s > STILL_S ? (
                    <Badge tone="critical">stands still for {durationText(each.still_s)}</Badge>
                  ) : (
                    <Badge tone="info">at work</Badge>
                  )}
                </td>
              </tr>
            ))}
            {jobs.tables.map((each) => (
              <tr key={each.table}>
                <td>
                  <span class="quiet">table</span> {each.table}
                </td>
                <td class="end quiet">written</td>
                <td class="number">
                  <Ago ms={each.written_ns / 1e6} /> ago
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function Consumers({ health }: { health: Health }) {
  return (
    <Panel title="Durable readers">
      {health.consumers.length === 0 ? (
        <Empty>No job reads a stream by a durable consumer.</Empty>
      ) : (
        <table class="plain">
          <thead>
            <tr>
              <th>Reader</th>
              <th class="end">Behind</th>
              <th class="end">Not acknowledged</th>
            </tr>
          </thead>
          <tbody>
            {health.consumers.map((each) => (
              <tr key={`${each.stream}/${each.consumer}`}>
                <td class="break">
                  {each.consumer} <span class="quiet">of {each.stream}</span>
                </td>
                <td class="end number">{each.pending.toLocaleString("en")}</td>
                <td class="end number">{each.ack_pending.toLocaleString("en")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}
