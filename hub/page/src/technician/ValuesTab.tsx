// What the vehicle says now: charts of chosen series, and the newest value of each, with unit and age.
import { useEffect, useMemo, useState } from "preact/hooks";
import { ChartList, useCharts, useWidth } from "../parts/Charts";
import { Panel } from "../parts/Panel";
import { RangePicker } from "../parts/RangePicker";
import { Empty, Loading } from "../parts/States";
import { ValuesTable, type ValueRow } from "../parts/ValuesTable";
import { pastOfVehicle } from "./charts";
import { go, place } from "./place";
import { ahead, hear, status, values, vehicleNow, type Valued } from "./vehicle";

const CHARTS_MAX = 6;

export function ValuesTab() {
  const rows = useMemo<ValueRow[]>(() => [...values.value].map(([id, point]) => ({ id, point })), [values.value]);
  const [sort, setSort] = useState("");
  const turn = (id: string): void => {
    const { series } = place.peek();
    const left = series.filter((each) => each !== id);
    go({ series: left.length < series.length ? left : [...series, id].slice(-CHARTS_MAX) });
  };
  return (
    <div class="stack">
      <Charts rows={rows} onRemove={turn} />
      <Panel title="Values" tools={<span class="quiet small">{rows.length} series</span>}>
        {status.value === null ? (
          <Loading what="values" />
        ) : (
          <ValuesTable
            rows={rows}
            none={rows.length === 0 ? "No program has published a value yet." : null}
            series={place.value.series}
            onTurn={turn}
            text={place.value.text}
            onText={(text) => go({ text })}
            sort={sort}
            onSort={setSort}
            unitOf={unitOf}
            aheadMs={ahead.value}
            rowsMax={15}
          />
        )}
      </Panel>
    </div>
  );
}

function unitOf(row: ValueRow): string | undefined {
  return (row.point as Valued).unit;
}

function Charts({ rows, onRemove }: { rows: readonly ValueRow[]; onRemove: (id: string) => void }) {
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
          unitOf={(each) => rows.filter((row) => row.id === each).map(unitOf)[0]}
          onRange={(to) => go({ range: to })}
          onRemove={onRemove}
        />
      </Panel>
    </div>
  );
}
