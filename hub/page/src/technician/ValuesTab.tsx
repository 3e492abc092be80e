// What the vehicle says now: charts of chosen series, and the newest value of each, with unit and age.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Sort } from "../logic/rows";
import { valueText, withUnit } from "../logic/text";
import { nameOf } from "../logic/values";
import { Ago } from "../parts/Ago";
import { ChartList, useCharts, useWidth } from "../parts/Charts";
import { Search } from "../parts/forms";
import { Panel } from "../parts/Panel";
import { RangePicker } from "../parts/RangePicker";
import { Empty, Loading } from "../parts/States";
import { Table, type Column } from "../parts/Table";
import { pastOfVehicle } from "./charts";
import { go, place } from "./place";
import { ahead, hear, status, values, vehicleNow, type Valued } from "./vehicle";

const CHARTS_MAX = 6;

interface Row {
  id: string;
  point: Valued;
}

export function ValuesTab() {
  const rows = useMemo<Row[]>(() => [...values.value].map(([id, point]) => ({ id, point })), [values.value]);
  const turn = (id: string): void => {
    const { series } = place.peek();
    const left = series.filter((each) => each !== id);
    go({ series: left.length < series.length ? left : [...series, id].slice(-CHARTS_MAX) });
  };
  return (
    <div class="stack">
      <Charts rows={rows} onRemove={turn} />
      <Panel title="Values" tools={<span class="quiet small">{rows.length} series</span>}>
        {status.value === null ? <Loading what="values" /> : <Newest rows={rows} onTurn={turn} />}
      </Panel>
    </div>
  );
}

function Charts({ rows, onRemove }: { rows: readonly Row[]; onRemove: (id: string) => void }) {
  const { series, range } = place.value;
  const [box, width] = useWidth();
  const charts = useCharts(pastOfVehicle(), series, range, width);
  useEffect(() => hear((points) => points.forEach(charts.add)), [series.join("\n")]);
  return (
    <div ref={box}>
      <Panel title="Charts" tools={<RangePicker range={range} onChange={(to) => go({ range: to })} />}>
        {series.length === 0 && <Empty>Choose some of the values below, to see what the vehicle still has of them.</Empty>}
        <ChartList
          charts={charts}
          series={series}
          range={range}
          nowMs={vehicleNow.value}
          unitOf={(each) => rows.find((row) => row.id === each)?.point.unit}
          onRange={(to) => go({ range: to })}
          onRemove={onRemove}
        />
      </Panel>
    </div>
  );
}

function Newest({ rows, onTurn }: { rows: readonly Row[]; onTurn: (id: string) => void }) {
  const { series, text } = place.value;
  const [sort, setSort] = useState<Sort>({ by: "series", down: false });
  const words = text.toLowerCase();
  const shown = rows.filter((each) => nameOf(each.id).toLowerCase().includes(words));
  const columns: Column<Row>[] = [
    {
      id: "chart",
      title: "Chart",
      width: "3.6rem",
      sortable: false,
      value: () => null,
      cell: (row) => (
        <input
          type="checkbox"
          checked={series.includes(row.id)}
          aria-label={`Chart of ${nameOf(row.id)}`}
          onChange={() => onTurn(row.id)}
        />
      ),
    },
    {
      id: "series",
      title: "Series",
      width: "minmax(5.5rem, 2fr)",
      value: (row) => nameOf(row.id),
      cell: (row) => (
        <span class="two-lines" title={nameOf(row.id)}>
          {nameOf(row.id)}
        </span>
      ),
    },
    {
      id: "value",
      title: "Value",
      width: "minmax(4.5rem, 1.3fr)",
      align: "end",
      value: (row) => (typeof row.point.value === "number" ? row.point.value : valueText(row.point.value)),
      cell: (row) => (
        <span class="cut" title={valueText(row.point.value)}>
          {withUnit(row.point.value, row.point.unit)}
        </span>
      ),
    },
    {
      id: "age",
      title: "Age",
      width: "4.6rem",
      align: "end",
      value: (row) => -row.point.time,
      cell: (row) => <Ago ms={row.point.time / 1e6 - ahead.value} />,
    },
    {
      id: "origin",
      title: "Written by",
      width: "minmax(6rem, 1fr)",
      wideOnly: true,
      value: (row) => row.point.origin || "vehicle",
    },
  ];
  return (
    <>
      <div class="filters">
        <Search label="Find a series" value={text} onInput={(value) => go({ text: value })} />
      </div>
      <Table
        label="Values"
        rows={shown}
        columns={columns}
        keyOf={(row) => row.id}
        sort={sort}
        onSort={setSort}
        onOpen={(row) => onTurn(row.id)}
        rowsMax={15}
        empty={rows.length === 0 ? "No program has published a value yet." : "No series fits."}
      />
    </>
  );
}
