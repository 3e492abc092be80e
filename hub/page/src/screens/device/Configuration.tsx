// The shadow of a device, edited in place, and conflicts between what both ends wrote.
import { useState } from "preact/hooks";
import { ask } from "../../hub/ask";
import { mayDo } from "../../hub/session";
import { encodeToken } from "../../hub/subjects";
import { sortOf, sortText } from "../../logic/rows";
import {
  differenceText,
  partsOf,
  shadowOf,
  withRevision,
  type Documents,
  type FieldRow,
  type Part,
  type Revision,
  type Shadow,
} from "../../logic/shadow";
import { valueText } from "../../logic/text";
import { nameOf } from "../../logic/values";
import { Badge } from "../../parts/Badge";
import { Search, Switch } from "../../parts/forms";
import { Panel } from "../../parts/Panel";
import { Failure, Loading } from "../../parts/States";
import { Table, type Column } from "../../parts/Table";
import { useAsked, useDoing, useHeard } from "../../state/asked";
import { filter, route } from "../../state/route";
import { Conflicts } from "./Conflicts";
import { EditField } from "./EditField";

export function Configuration({ device }: { device: string }) {
  return (
    <div class="stack">
      <ShadowPanel device={device} />
      <Conflicts device={device} />
    </div>
  );
}

interface Answer {
  documents: Documents;
}

function ShadowPanel({ device }: { device: string }) {
  const asked = useAsked<Answer>("shadow", { device });
  const [edited, setEdited] = useState<{ row: FieldRow | null; base: number } | null>(null);
  useHeard([`${encodeToken(device)}.$.shadow.*`], (_, payload) => {
    const { part, number, time, body } = payload as { part: Part } & Revision;
    asked.change((answer) => ({ ...answer, documents: withRevision(answer.documents, part, { number, time, body }) }));
  });
  const shadow = asked.value && shadowOf(asked.value.documents);
  const differ = shadow?.rows.filter((each) => each.difference !== null).length ?? 0;
  return (
    <Panel
      title="Desired and reported"
      tools={
        shadow && (
          <>
            <Badge tone={differ > 0 ? "warning" : "good"}>{differ > 0 ? `${differ} differ` : "nothing differs"}</Badge>
            <span class="quiet small">revision {shadow.revision || "–"}</span>
            {mayDo("write") && (
              <button type="button" onClick={() => setEdited({ row: null, base: shadow.revision })}>
                Desire another field
              </button>
            )}
          </>
        )
      }
    >
      {asked.error && <Failure error={asked.error} onRetry={asked.again} />}
      {shadow === null && !asked.error && <Loading what="the shadow" />}
      {shadow?.meta.refused && (
        <Failure
          error={{
            message: `The hub refused revision ${shadow.meta.refused.revision}: ${shadow.meta.refused.reason}`,
            hint: "what was desired before stays in force until somebody changes it",
          }}
        />
      )}
      {shadow && <Fields device={device} shadow={shadow} onEdit={(row) => setEdited({ row, base: shadow.revision })} />}
      {edited && shadow && (
        <EditField
          device={device}
          row={edited.row}
          base={edited.base}
          newest={shadow.revision}
          now={shadow.rows.find((each) => each.field === edited.row?.field) ?? null}
          onRebase={() => setEdited({ ...edited, base: shadow.revision })}
          onClose={() => setEdited(null)}
          onDone={() => {
            setEdited(null);
            asked.again();
          }}
        />
      )}
    </Panel>
  );
}

interface FieldsProps {
  device: string;
  shadow: Shadow;
  onEdit: (row: FieldRow) => void;
}

function Fields({ device, shadow, onEdit }: FieldsProps) {
  const { filters } = route.value;
  const doing = useDoing();
  const only = filters["show"] === "differ" ? "differ" : filters["show"] === "desired" ? "desired" : "all";
  const words = (filters["text"] ?? "").toLowerCase();
  const rows = shadow.rows.filter(
    (each) =>
      nameOf(each.field).toLowerCase().includes(words) &&
      (only === "all" || (only === "differ" ? each.difference !== null : each.desired !== undefined)),
  );
  const may = mayDo("write");
  const forget = (row: FieldRow): void => {
    const parts = partsOf(row.field);
    if (parts !== null)
      void doing.run(() => ask("desire", { device, forget: [row.field], based_on: shadow.revision }));
  };
  const columns: Column<FieldRow>[] = [
    { id: "field", title: "Field", width: "minmax(4.6rem, 2fr)", value: (row) => nameOf(row.field), cell: (row) => <strong class="two-lines">{nameOf(row.field)}</strong> },
    { id: "desired", title: "Desired", width: "minmax(3.9rem, 1fr)", value: (row) => desiredText(row), cell: (row) => <span title={desiredText(row)} data-desired={row.field}>{desiredText(row)}</span> },
    { id: "reported", title: "Reported", width: "minmax(4.6rem, 1fr)", value: (row) => valueText(row.reported), cell: (row) => <span title={valueText(row.reported)} data-reported={row.field}>{valueText(row.reported)}</span> },
    {
      id: "differs",
      title: "Differs",
      width: "minmax(6.6rem, 1.5fr)",
      value: (row) => (row.difference ? differenceText(row) : row.desired === undefined ? "" : "as desired"),
      cell: (row) =>
        row.difference ? (
          <Badge tone={row.difference.why === "on its way" ? "info" : "warning"} title={differenceText(row)}>
            {differenceText(row)}
          </Badge>
        ) : row.desired === undefined ? (
          ""
        ) : (
          <Badge tone="good">as desired</Badge>
        ),
    },
    { id: "origin", title: "Written by", width: "minmax(6rem, 1fr)", wideOnly: true, value: (row) => row.origin || null },
    {
      id: "do",
      title: "",
      width: "9.5rem",
      wideOnly: true,
      sortable: false,
      value: () => "",
      cell: (row) =>
        may && (
          <span class="row-buttons">
            <button type="button" class="plain" aria-label={`Edit ${nameOf(row.field)}`} onClick={() => onEdit(row)}>
              Edit
            </button>
            {row.desired !== undefined && (
              <button
                type="button"
                class="plain"
                disabled={doing.busy}
                aria-label={`Forget ${nameOf(row.field)}`}
                title="Nothing is desired of it any more; its value stays"
                onClick={() => forget(row)}
              >
                Forget
              </button>
            )}
          </span>
        ),
    },
  ];
  return (
    <>
      <div class="filters">
        <Search label="Find a field" value={filters["text"] ?? ""} onInput={(text) => filter({ text })} />
        <Switch
          label="Fields"
          value={only}
          choices={[
            { value: "all", text: "All" },
            { value: "desired", text: "Desired" },
            { value: "differ", text: "Differ" },
          ]}
          onChange={(show) => filter({ show: show === "all" ? "" : show })}
        />
      </div>
      {doing.error && <Failure error={doing.error} />}
      <Table
        label="Fields of the shadow"
        rows={rows}
        columns={may ? columns : columns.filter((each) => each.id !== "do")}
        keyOf={(row) => row.field}
        sort={sortOf(filters["sort"], ["field", "desired", "reported", "differs", "origin"]) ?? { by: "field", down: false }}
        onSort={(sort) => filter({ sort: sortText(sort) })}
        onOpen={may ? onEdit : undefined}
        rowHeight={44}
        empty={shadow.rows.length === 0 ? "Nothing is desired of this device, and it has reported no configuration." : "No field fits."}
      />
    </>
  );
}

function desiredText(row: FieldRow): string {
  return row.desired === null ? "deleted" : valueText(row.desired);
}
