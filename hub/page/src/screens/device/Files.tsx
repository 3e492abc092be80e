// Files: what the device has sent, and what each of its slots is to hold and holds.
import { numberText, valueText } from "../../logic/text";
import type { Point } from "../../logic/values";
import { Ago, At } from "../../parts/Ago";
import { Badge } from "../../parts/Badge";
import { Panel } from "../../parts/Panel";
import { Awaited, Empty } from "../../parts/States";
import { Table, type Column } from "../../parts/Table";
import { sortOf, sortText } from "../../logic/rows";
import { slotsOf, type Slot } from "../../logic/slots";
import { useAsked } from "../../state/asked";
import { useValues } from "../../state/values";
import { filter, route } from "../../state/route";

interface Upload {
  name: string;
  bytes: number;
  digest: string;
  stored: string;
}

const STATES = { ready: "good", fetching: "info", failed: "critical", empty: "quiet" } as const;

export function Files({ device }: { device: string }) {
  return (
    <div class="stack">
      <Slots device={device} />
      <Uploads device={device} />
    </div>
  );
}

const nothing = (_: Point): void => undefined;

function Slots({ device }: { device: string }) {
  const { values, asked } = useValues(device, nothing);
  const slots = slotsOf(values.values());
  return (
    <Panel title="Files for the device">
      <Awaited of={asked} what="slots" />
      {asked.value !== null && slots.length === 0 && (
        <Empty>
          No file is rolled out to this device. An operator begins with <code>backhaul-hub set {device} artifact.SLOT=NAME@SHA256</code>.
        </Empty>
      )}
      <ul class="cards">
        {slots.map((each) => (
          <SlotCard key={each.name} slot={each} />
        ))}
      </ul>
    </Panel>
  );
}

function SlotCard({ slot }: { slot: Slot }) {
  const tone = STATES[slot.state as keyof typeof STATES] ?? "quiet";
  return (
    <li class="card">
      <h3 class="break">{slot.name}</h3>
      <p>
        <Badge tone={tone}>{slot.state || "not reported"}</Badge>{" "}
        {slot.ms !== null && (
          <span class="quiet small">
            <Ago ms={slot.ms} /> ago
          </span>
        )}
      </p>
      <dl class="pairs">
        <dt>Wanted</dt>
        <dd class="break fixed">{slot.wanted || "nothing"}</dd>
        <dt>There</dt>
        <dd class="break fixed">{slot.held || "–"}</dd>
      </dl>
      {slot.error && <p class="small break">{slot.error}</p>}
    </li>
  );
}

function Uploads({ device }: { device: string }) {
  const asked = useAsked<{ uploads: Upload[] }>("files", { device });
  const columns: Column<Upload>[] = [
    { id: "name", title: "Name", width: "minmax(5rem, 2fr)", value: (row) => row.name },
    { id: "bytes", title: "Size", width: "minmax(4rem, 6rem)", align: "end", value: (row) => row.bytes, cell: (row) => sizeText(row.bytes) },
    {
      id: "stored",
      title: "Stored",
      width: "minmax(10rem, 12.5rem)",
      value: (row) => Date.parse(row.stored) || null,
      cell: (row) => (Date.parse(row.stored) ? <At ms={Date.parse(row.stored)} /> : valueText(row.stored)),
    },
    {
      id: "digest",
      title: "SHA-256",
      width: "minmax(8rem, 2fr)",
      wideOnly: true,
      value: (row) => row.digest,
      cell: (row) => <code title={row.digest}>{row.digest}</code>,
    },
  ];
  return (
    <Panel title="Files from the device" tools={<button type="button" class="plain" onClick={asked.again}>Look again</button>}>
      <Awaited of={asked} what="files" />
      {asked.value && asked.value.uploads.length === 0 && <Empty>This device has sent no files.</Empty>}
      {asked.value && asked.value.uploads.length > 0 && (
        <>
          <Table
            label="Files from the device"
            rows={asked.value.uploads}
            columns={columns}
            keyOf={(row) => row.name}
            sort={sortOf(route.value.filters["sort"], columns.map((each) => each.id)) ?? { by: "stored", down: true }}
            onSort={(sort) => filter({ sort: sortText(sort) })}
            empty=""
          />
          <p class="quiet small">
            An operator fetches one with <code>backhaul-hub artifact get NAME --device {device}</code>.
          </p>
        </>
      )}
    </Panel>
  );
}

function sizeText(bytes: number): string {
  const units = ["B", "kB", "MB", "GB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${numberText(bytes / 1000 ** power, 3)} ${units[power] ?? "B"}`;
}
