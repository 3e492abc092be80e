// What a device says now: charts of chosen series, its tree, and the newest value of each series.
import { useEffect, useMemo } from "preact/hooks";
import { deviceTree, flat, namesBelow, type TreeAnswer } from "../../logic/tree";
import { units } from "../../hub/where";
import { unitOf } from "../../logic/values";
import { now } from "../../parts/Ago";
import { ChartList, useCharts, useWidth, type Charts } from "../../parts/Charts";
import { Panel } from "../../parts/Panel";
import { Awaited, Empty } from "../../parts/States";
import { Tree } from "../../parts/Tree";
import { ValuesTable } from "../../parts/ValuesTable";
import { useAsked } from "../../state/asked";
import { pastOf } from "../../state/charts";
import { filter, go, route } from "../../state/route";
import { useValues } from "../../state/values";

const CHARTS_MAX = 8;

export function Live({ device }: { device: string }) {
  const { series, filters } = route.value;
  const [box, width] = useWidth();
  const charts = useCharts(pastOf(device), series, route.value.range, width);
  const { values, asked } = useValues(device, charts.add);
  const tree = useAsked<TreeAnswer>("tree", {});
  const rows = useMemo(() => [...values].map(([id, point]) => ({ id, point })), [values]);
  const chosen = filters["node"] ?? "";
  const roots = useMemo(
    () => [deviceTree(tree.value, device, rows.map((each) => each.point.node).filter((each) => each !== device))],
    [tree.value, device, rows.map((each) => each.point.node).join()],
  );

  const place = flat(roots, () => true).find((each) => each.node.id === `${device}/${chosen}`);
  const below = place === undefined ? null : new Set(namesBelow(place.node));

  useEffect(() => {
    // A device that is opened without a series begins with some of its own.
    if (series.length > 0 || filters["charts"] === "none" || rows.length === 0) return;
    const numbers = rows.filter((each) => typeof each.point.value === "number" && !each.point.origin);
    if (numbers.length > 0) go({ series: numbers.slice(0, 3).map((each) => each.id) });
  }, [rows.length > 0]);

  const turn = (id: string): void => {
    const left = series.filter((each) => each !== id);
    const next = left.length < series.length ? left : [...series, id].slice(-CHARTS_MAX);
    go({ series: next, filters: { ...filters, charts: next.length === 0 ? "none" : "" } });
  };
  return (
    <div class="live">
      <div ref={box} class="live-charts">
        <ChartsPanel charts={charts} series={series} values={values.size} onRemove={turn} />
      </div>
      <Panel title="Tree" class="live-tree">
        <Awaited of={tree} what="the tree" />
        {(tree.value !== null || tree.error) && (
          <Tree
            label={`Tree of ${device}`}
            roots={roots}
            selected={`${device}${chosen ? `/${chosen}` : ""}`}
            onSelect={(id) => filter({ node: id === device ? "" : id.slice(device.length + 1) })}
            aside={(node) => countText(node.id === device ? rows.length : rows.filter((each) => `${device}/${each.point.node}` === node.id).length)}
          />
        )}
      </Panel>
      <Panel title="Values" class="live-values" tools={<span class="quiet small">{rows.length} series</span>}>
        <Awaited of={asked} what="values" />
        {asked.value !== null && (
          <ValuesTable
            rows={rows.filter((each) => below === null || below.has(each.point.node))}
            none={rows.length === 0 ? "This device has no values yet." : null}
            series={series}
            onTurn={turn}
            text={filters["text"] ?? ""}
            onText={(text) => filter({ text })}
            sort={filters["sort"] ?? ""}
            onSort={(sort) => filter({ sort })}
            unitOf={(row) => unitOf(units.value, row.id)}
            rowsMax={12}
          />
        )}
      </Panel>
    </div>
  );
}

function countText(count: number): string {
  return count === 0 ? "" : String(count);
}

interface ChartsProps {
  charts: Charts;
  series: readonly string[];
  values: number;
  onRemove: (series: string) => void;
}

function ChartsPanel({ charts, series, values, onRemove }: ChartsProps) {
  return (
    <Panel title="Charts" tools={series.length > 0 && <span class="quiet small">drag to zoom; arrow keys, + and − on a chart</span>}>
      {series.length === 0 && (
        <Empty>{values === 0 ? "This device has no readings yet." : "No series is chosen. Choose some of the values."}</Empty>
      )}
      <ChartList
        charts={charts}
        series={series}
        range={route.value.range}
        nowMs={now.value}
        unitOf={(each) => unitOf(units.value, each)}
        onRange={(range) => go({ range })}
        onRemove={onRemove}
      />
    </Panel>
  );
}
