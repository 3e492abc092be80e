// The table of the fleet: how each vehicle is, in one row.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { sortOf, sortText } from "../logic/rows";
import { ageText, numberText, valueText } from "../logic/text";
import { unitOf } from "../logic/values";
import { units } from "../hub/where";
import { Ago, now } from "../parts/Ago";
import { Badge, type Tone } from "../parts/Badge";
import { Panel } from "../parts/Panel";
import { Empty, Loading } from "../parts/States";
import { Table, type Column } from "../parts/Table";
import type { FleetRow } from "../state/fleet";
import { filter, go, href, route } from "../state/route";

const TONES: Record<string, Tone> = { error: "critical", warning: "warning", info: "info" };

interface FleetTableProps {
  rows: readonly FleetRow[];
  series: readonly string[];
  whole: boolean;
  tools: ComponentChildren;
}

export function FleetTable({ rows, series, whole, tools }: FleetTableProps) {
  const columns = useMemo(() => [...FIRST, ...series.map(valueColumn), CONDITIONS], [series.join("\n")]);
  const sort = sortOf(
    route.value.filters["sort"] || "device",
    columns.map((each) => each.id),
  );
  return (
    <Panel title="Devices" tools={tools}>
      <Table
        label="Devices"
        rows={rows}
        columns={columns}
        keyOf={(row) => row.device}
        sort={sort}
        onSort={(next) => filter({ sort: sortText(next) })}
        onOpen={(row) => go({ screen: "device", device: row.device })}
        empty={whole ? <Empty>No device matches this filter.</Empty> : <Loading what="devices" />}
        rowHeight={36}
        rowsMax={16}
      />
    </Panel>
  );
}

const FIRST: readonly Column<FleetRow>[] = [
  {
    id: "device",
    title: "Device",
    width: "minmax(5rem, 1.4fr)",
    value: (row) => row.device,
    cell: (row) => (
      <a href={href({ screen: "device", device: row.device })} class="break">
        {row.device}
      </a>
    ),
  },
  {
    id: "link",
    title: "Link",
    width: "minmax(6rem, 1fr)",
    value: (row) => (row.revoked ? 3 : row.up === true ? 0 : row.up === false ? 1 : 2),
    cell: (row) => <LinkState row={row} />,
  },
  {
    id: "newest",
    title: "Newest",
    width: "minmax(4rem, 0.6fr)",
    align: "end",
    value: (row) => row.newestMs,
    cell: (row) => (row.newestMs === null ? "–" : <Ago ms={row.newestMs} />),
  },
  {
    id: "lag",
    title: "Lag",
    width: "minmax(4rem, 0.5fr)",
    align: "end",
    wideOnly: true,
    value: (row) => row.lag,
    cell: (row) => (row.lag === null ? "–" : numberText(row.lag)),
  },
  {
    id: "backlog",
    title: "Backlog",
    width: "minmax(4.5rem, 0.5fr)",
    align: "end",
    wideOnly: true,
    value: (row) => row.backlog,
    cell: (row) => (row.backlog === 0 ? <span class="quiet">0</span> : numberText(row.backlog)),
  },
];

const CONDITIONS: Column<FleetRow> = {
  id: "conditions",
  title: "Conditions",
  width: "minmax(7rem, 2fr)",
  value: (row) => worst(row),
  cell: (row) => (
    <span class="badges">
      {row.conditions.map((each, at) => (
        <Badge key={at} tone={TONES[each.severity] ?? "quiet"} title={`${each.severity}: ${each.code} ${each.about}`.trim()}>
          {each.code}
        </Badge>
      ))}
      {row.more > 0 && <span class="quiet">+{row.more}</span>}
    </span>
  ),
};

function worst(row: FleetRow): number | null {
  if (row.conditions.length === 0) return null;
  return Math.min(...row.conditions.map((each) => ["error", "warning", "info"].indexOf(each.severity)));
}

function valueColumn(series: string): Column<FleetRow> {
  return {
    id: `value:${series}`,
    title: series,
    width: "minmax(6rem, 0.8fr)",
    align: "end",
    value: (row) => {
      const value = row.values[series]?.value;
      return typeof value === "number" ? value : value === undefined ? null : valueText(value);
    },
    cell: (row) => {
      const value = row.values[series]?.value;
      if (value === undefined) return <span class="quiet">–</span>;
      const unit = unitOf(units.value, series);
      const text = typeof value === "number" ? numberText(value, 5) : valueText(value);
      return <span class="cut">{unit ? `${text}\u202f${unit}` : text}</span>;
    },
  };
}

function LinkState({ row }: { row: FleetRow }) {
  const age = row.sinceMs === null ? "" : ` ${ageText(now.value - row.sinceMs)}`;
  if (row.revoked) return <Badge tone="quiet">revoked</Badge>;
  if (row.up === true) return <Badge tone="good">up{age}</Badge>;
  if (row.up === false) return <Badge tone="critical">down{age}</Badge>;
  return <Badge tone="quiet">never seen</Badge>;
}
