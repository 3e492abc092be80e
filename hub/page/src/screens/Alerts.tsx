// Alerts: open and past ones, from rules, health conditions and anomalies alike; acknowledged and silenced here.
import { useMemo, useState } from "preact/hooks";
import {
  counts,
  filtersOf,
  fits,
  rank,
  SEVERITIES,
  sourceText,
  SOURCES,
  withAlert,
  type Alert,
  type Filters,
  type Silence,
} from "../logic/alerts";
import { sortOf, sortText } from "../logic/rows";
import { ask } from "../hub/ask";
import { mayDo } from "../hub/session";
import { Ago, now } from "../parts/Ago";
import { Badge } from "../parts/Badge";
import { Search, Select, Switch } from "../parts/forms";
import { Panel } from "../parts/Panel";
import { Awaited, Empty, Failure } from "../parts/States";
import { Table, type Column } from "../parts/Table";
import { useAsked, useDoing, useHeard } from "../state/asked";
import { filter, href, route } from "../state/route";
import { AlertDetails } from "./alerts/AlertDetails";
import { SilenceDialog } from "./alerts/SilenceDialog";
import { Silences } from "./alerts/Silences";

const LIMIT = 1000;

interface Answer {
  alerts: Alert[];
  silences: Silence[];
  next_before_ns: number | null;
}

export function Alerts() {
  const named = route.value.filters;
  const filters = filtersOf(named);
  const past = filters.state !== "open";
  const question = { past, limit: LIMIT, ...(filters.device ? { device: filters.device } : {}) };
  const asked = useAsked<Answer>("alerts", question);
  const more = useDoing();
  const [silencing, setSilencing] = useState<{ group: string; name: string } | null>(null);
  const take = (alert: Alert): void =>
    asked.change((answer) => ({ ...answer, alerts: withAlert(answer.alerts, alert) }));
  useHeard(["*.$.alert.*"], (_, payload) => take(payload as Alert));
  const alerts = asked.value?.alerts ?? [];
  const shown = useMemo(() => alerts.filter((each) => fits(each, filters)), [alerts, JSON.stringify(filters)]);
  const open = shown.find((each) => each.id === named["alert"]) ?? null;
  const older = async (): Promise<void> => {
    const before = asked.value?.next_before_ns;
    const answer = await ask<Answer>("alerts", { ...question, before_ns: before });
    asked.change((now) => ({
      ...now,
      alerts: answer.alerts.reduce(withAlert, now.alerts),
      next_before_ns: answer.next_before_ns,
    }));
  };
  return (
    <div class="alerts">
      <header class="device-head">
        <h1>Alerts</h1>
        <Counts alerts={alerts} />
        {mayDo("write") && (
          <button type="button" onClick={() => setSilencing({ group: filters.device, name: "" })}>
            Silence …
          </button>
        )}
      </header>
      <FilterForm filters={filters} />
      <Awaited of={asked} what="alerts" />
      {asked.value !== null && (
        <div class={`alerts-main ${open ? "with-details" : ""}`}>
          <Panel title={title(filters)} tools={<span class="quiet small">{shown.length}</span>}>
            <AlertTable rows={shown} open={open?.id ?? null} onTake={take} filters={filters} />
            {past && asked.value.next_before_ns !== null && (
              <button type="button" disabled={more.busy} onClick={() => void more.run(older)}>
                {more.busy ? "Loading …" : "Older ones"}
              </button>
            )}
            {more.error && <Failure error={more.error} />}
          </Panel>
          {open && (
            <AlertDetails
              key={open.id}
              alert={open}
              onTake={take}
              onSilence={() => setSilencing({ group: open.device, name: open.name })}
              onClose={() => filter({ alert: "" })}
            />
          )}
          <Silences silences={asked.value.silences} onChange={asked.again} />
        </div>
      )}
      {silencing && (
        <SilenceDialog
          {...silencing}
          onClose={() => setSilencing(null)}
          onDone={() => {
            setSilencing(null);
            asked.again();
          }}
        />
      )}
    </div>
  );
}

function title(filters: Filters): string {
  const which = { open: "Open", past: "Past", all: "All" }[filters.state];
  return filters.device ? `${which} alerts of ${filters.device}` : `${which} alerts`;
}

function Counts({ alerts }: { alerts: readonly Alert[] }) {
  const found = counts(alerts);
  return (
    <p class="standing" aria-label="Open alerts" role="status">
      {SEVERITIES.map((each) => (
        <Badge key={each} tone={found[each] > 0 ? each : "quiet"}>
          {found[each]} {each}
        </Badge>
      ))}
    </p>
  );
}

function FilterForm({ filters }: { filters: Filters }) {
  const any = (text: string) => ({ value: "", text });
  return (
    <div class="filters" role="search" aria-label="Filters">
      <div class="field">
        <span class="small label">State</span>
        <Switch
          label="State"
          value={filters.state}
          choices={[
            { value: "open", text: "Open" },
            { value: "past", text: "Past" },
            { value: "all", text: "All" },
          ]}
          onChange={(state) => filter({ state: state === "open" ? "" : state })}
        />
      </div>
      <Select
        label="Severity"
        value={filters.severity}
        choices={[any("any"), { value: "critical", text: "critical" }, { value: "warning", text: "warning or worse" }]}
        onChange={(severity) => filter({ severity })}
      />
      <Select
        label="Raised by"
        value={filters.source}
        choices={[any("anything"), ...SOURCES.map((each) => ({ value: each, text: sourceText(each) }))]}
        onChange={(source) => filter({ source })}
      />
      <Select
        label="Acknowledged"
        value={filters.acknowledged}
        choices={[any("either way"), { value: "no", text: "by nobody" }, { value: "yes", text: "by somebody" }]}
        onChange={(acknowledged) => filter({ acknowledged })}
      />
      <Search label="Find a text" value={filters.text} onInput={(text) => filter({ text })} />
      <Search label="Device" value={filters.device} onInput={(device) => filter({ device })} />
    </div>
  );
}

interface TableProps {
  rows: readonly Alert[];
  open: string | null;
  filters: Filters;
  onTake: (alert: Alert) => void;
}

const SORTS = ["severity", "since", "device", "name", "text", "acknowledged"];

function AlertTable({ rows, open, filters, onTake }: TableProps) {
  const doing = useDoing();
  const may = mayDo("write");
  const acknowledge = (alert: Alert): void => {
    void doing.run(async () => onTake(await ask<Alert>("acknowledge", { id: alert.id })));
  };
  const columns: Column<Alert>[] = [
    {
      id: "severity",
      title: "Severity",
      width: "minmax(5.4rem, 6.2rem)",
      value: (row) => rank(row.severity),
      cell: (row) => <Badge tone={row.state === "past" ? "quiet" : row.severity}>{row.severity}</Badge>,
    },
    {
      id: "since",
      title: "Since",
      width: "minmax(3.9rem, 4.7rem)",
      align: "end",
      value: (row) => -row.since_ns,
      cell: (row) => <Ago ms={row.since_ns / 1e6} />,
    },
    {
      id: "device",
      title: "Device",
      width: "minmax(4.4rem, 1fr)",
      value: (row) => row.device || "the hub",
      cell: (row) =>
        row.device ? (
          <a href={href({ screen: "device", device: row.device, filters: {} })}>{row.device}</a>
        ) : (
          <span class="quiet">the hub</span>
        ),
    },
    { id: "name", title: "Alert", width: "minmax(5.4rem, 1fr)", value: (row) => row.name, cell: (row) => <strong title={row.name}>{row.name}</strong> },
    { id: "text", title: "What is wrong", width: "minmax(8rem, 3fr)", wideOnly: true, value: (row) => row.text, cell: (row) => <span title={row.text}>{row.text}</span> },
    {
      id: "acknowledged",
      title: "Acknowledged",
      width: "minmax(14.5rem, 1fr)",
      wideOnly: true,
      value: (row) => row.acknowledged?.by ?? "",
      cell: (row) => <Acknowledged alert={row} may={may} busy={doing.busy} onClick={() => acknowledge(row)} />,
    },
  ];
  return (
    <>
      {doing.error && <Failure error={doing.error} />}
      <Table
        label={title(filters)}
        rows={rows}
        columns={columns}
        keyOf={(row) => row.id}
        sort={sortOf(route.value.filters["sort"], SORTS)}
        onSort={(sort) => filter({ sort: sortText(sort) })}
        onOpen={(row) => filter({ alert: row.id })}
        open={open}
        rowHeight={44}
        rowsMax={14}
        empty={<Empty>{isFiltering(filters) ? "No alert fits these filters." : "Nothing is wrong: no alert is open."}</Empty>}
      />
    </>
  );
}

function isFiltering(filters: Filters): boolean {
  const { severity, source, device, text, acknowledged, state } = filters;
  return [severity, source, device, text, acknowledged].some((each) => each !== "") || state !== "open";
}

function Acknowledged({ alert, may, busy, onClick }: { alert: Alert; may: boolean; busy: boolean; onClick: () => void }) {
  const silent = alert.silent_until_ns && alert.silent_until_ns / 1e6 > now.value;
  if (alert.acknowledged)
    return (
      <span data-acknowledged={alert.id}>
        {alert.acknowledged.by}, <Ago ms={alert.acknowledged.time_ns / 1e6} /> ago
      </span>
    );
  if (alert.state === "past") return <span class="quiet">nobody</span>;
  return (
    <>
      {may ? (
        <button type="button" class="plain" disabled={busy} aria-label={`Acknowledge ${alert.name} of ${alert.device || "the hub"}`} onClick={onClick}>
          Acknowledge
        </button>
      ) : (
        <span class="quiet">nobody</span>
      )}
      {silent ? <Badge tone="quiet">silenced</Badge> : null}
    </>
  );
}
