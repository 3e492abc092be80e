// What the vehicle says now: charts of chosen series, and the newest value of each, with unit and age.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Sort } from "../logic/rows";
import { valueText, withUnit } from "../logic/text";
import { nameOf } from "../logic/values";
import { Ago } from "../parts/Ago";
import { Search } from "../parts/forms";
import { Panel } from "../parts/Panel";
import { TINTS } from "../parts/plot";
import { RangePicker } from "../parts/RangePicker";
import { SeriesChart } from "../parts/SeriesChart";
import { Empty, Loading } from "../parts/States";
import { Table, type Column } from "../parts/Table";
import { bounds, ranged } from "../state/time";
import { useCharts } from "./charts";
import { go, place } from "./place";
import { ahead, status, values, vehicleNow, type Valued } from "./vehicle";

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
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const watch = new ResizeObserver(() => setWidth(element.clientWidth));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  const of = useCharts(series, range, width);
  const cursor = useSignal<number | null>(null);
  const { fromMs, toMs } = bounds(range, vehicleNow.value);
  return (
    <div ref={box}>
      <Panel title="Charts" tools={<RangePicker range={range} onChange={(to) => go({ range: to })} />}>
        {series.length === 0 && <Empty>Choose some of the values below, to see what the vehicle still has of them.</Empty>}
        {series.map((each, index) => {
          const state = of(each);
          const unit = rows.find((row) => row.id === each)?.point.unit;
          return (
            <SeriesChart
              key={each}
              name={nameOf(each)}
              history={state.history && unit ? { ...state.history, unit } : state.history}
              notice={state.notice}
              live={state.live}
              texts={state.texts}
              version={state.version}
              fromUs={fromMs * 1000}
              toUs={toMs * 1000}
              nowUs={vehicleNow.value * 1000}
              cursor={cursor}
              tint={(index % TINTS) + 1}
              onRange={(from, to) => go({ range: ranged(from, to, vehicleNow.peek()) })}
              onRemove={() => onRemove(each)}
            />
          );
        })}
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
