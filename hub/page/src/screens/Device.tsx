// One device: what it says now and has said, what is desired of it, what it was told to do, what is missing.
import { filter, go, href, route } from "../state/route";
import { RangePicker } from "../parts/RangePicker";
import { Empty } from "../parts/States";
import { Commands } from "./device/Commands";
import { Configuration } from "./device/Configuration";
import { Events } from "./device/Events";
import { Files } from "./device/Files";
import { Hours } from "./device/Hours";
import { Live } from "./device/Live";
import { OpenAlerts } from "./device/OpenAlerts";
import { Standing } from "./device/Standing";

const TABS = {
  live: ["Live", Live],
  events: ["Events", Events],
  configuration: ["Configuration", Configuration],
  commands: ["Commands", Commands],
  hours: ["Hours", Hours],
  files: ["Files", Files],
} as const;

type Tab = keyof typeof TABS;

const RANGED: readonly Tab[] = ["live", "events", "hours"];

export function Device() {
  const { device, filters, range } = route.value;
  if (device === null)
    return (
      <Empty>
        No device is chosen. <a href={href({ screen: "fleet" })}>Choose one of the fleet.</a>
      </Empty>
    );
  const tab: Tab = (filters["tab"] ?? "live") in TABS ? ((filters["tab"] ?? "live") as Tab) : "live";
  const [name, Content] = TABS[tab];
  return (
    <div class="device">
      <header class="device-head">
        <h1 class="break">{device}</h1>
        <Standing key={`standing ${device}`} device={device} />
        <OpenAlerts key={device} device={device} />
        {RANGED.includes(tab) && <RangePicker range={range} onChange={(to) => go({ range: to })} />}
      </header>
      <nav class="tabs" aria-label={`Parts of ${device}`}>
        {Object.entries(TABS).map(([id, [text]]) => (
          <a
            key={id}
            href={href({ filters: { ...filters, tab: id === "live" ? "" : id } })}
            aria-current={id === tab ? "page" : undefined}
            onClick={(event) => {
              event.preventDefault();
              filter({ tab: id === "live" ? "" : id });
            }}
          >
            {text}
          </a>
        ))}
      </nav>
      <div class="device-part" aria-label={name}>
        <Content key={device} device={device} />
      </div>
    </div>
  );
}
