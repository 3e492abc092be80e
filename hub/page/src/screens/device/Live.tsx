// What a device says now: charts of chosen series, its tree, and the newest value of each series.
import { useEffect, useMemo } from "preact/hooks";
import { deviceTree, flat, namesBelow, type TreeAnswer } from "../../logic/tree";
import { sortOf, sortText } from "../../logic/rows";
import { valueText, withUnit } from "../../logic/text";
import { units } from "../../hub/where";
import { nameOf, unitOf, type Point } from "../../logic/values";
import { Ago, now } from "../../parts/Ago";
import { ChartList, useCharts, useWidth, type Charts } from "../../parts/Charts";
import { Search } from "../../parts/forms";
import { Panel } from "../../parts/Panel";
import { Empty, Failure, Loading } from "../../parts/States";
import { Table, type Column } from "../../parts/Table";
import { Tree } from "../../parts/Tree";
import { useAsked } from "../../state/asked";
import { pastOf } from "../../state/charts";
import { filter, go, route } from "../../state/route";
import { useValues } from "../../state/values";

const CHARTS_MAX = 8;

export function Live({ device }: { device: string }) {
  const { series, filters } = route.value;
  const [place, width] = useWidth();
  const charts = useCharts(pastOf(device), series, route.value.range, width);
  const { values, asked } = useValues(device, charts.add);
  const tree = useAsked<TreeAnswer>("tree", {});
  const rows = useMemo(() => [...values].map(([id, point]) => ({ id, point })), [values]);
  const chosen = filters["node"] ?? "";
  const roots = useMemo(
    () => [deviceTree(tree.value, device, rows.map((each) => each.point.node).filter((each) => each !== device))],
    [tree.value, device, rows.map((each) => each.point.node).join()],
  );

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
      <div ref={place} class="live-charts">
        <ChartsPanel charts={charts} series={series} values={values.size} onRemove={turn} />
      </div>
      <Panel title="Tree" class="live-tree">
        {tree.error && <Failure error={tree.error} onRetry={tree.again} />}
        {tree.value === null && !tree.error ? (
          <Loading what="the tree" />
        ) : (
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
        {asked.error && <Failure error={asked.error} onRetry={asked.again} />}
        {asked.value === null && !asked.error && <Loading what="values" />}
        {asked.value !== null && (
          <Values rows={rows} roots={roots} series={series} onTurn={turn} />
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

interface Row {
  id: string;
  point: Point;
}

interface ValuesProps {
  rows: readonly Row[];
  roots: Parameters<typeof flat>[0];
  series: readonly string[];
  onTurn: (series: string) => void;
}

function Values({ rows, roots, series, onTurn }: ValuesProps) {
  const { filters, device } = route.value;
  const node = filters["node"] ?? "";
  const words = (filters["text"] ?? "").toLowerCase();
  const place = flat(roots, () => true).find((each) => each.node.id === `${device}/${node}`);
  const below = place === undefined ? null : new Set(namesBelow(place.node));
  const shown = rows.filter(
    (each) => (below === null || below.has(each.point.node)) && nameOf(each.id).toLowerCase().includes(words),
  );
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
    { id: "series", title: "Series", width: "minmax(5.5rem, 2fr)", value: (row) => nameOf(row.id), cell: (row) => <span class="two-lines" title={nameOf(row.id)}>{nameOf(row.id)}</span> },
    {
      id: "value",
      title: "Value",
      width: "minmax(4.5rem, 1.3fr)",
      align: "end",
      value: (row) => (typeof row.point.value === "number" ? row.point.value : valueText(row.point.value)),
      cell: (row) => (
        <span title={valueText(row.point.value)}>{withUnit(row.point.value, unitOf(units.value, row.id))}</span>
      ),
    },
    {
      id: "age",
      title: "Age",
      width: "4.6rem",
      align: "end",
      value: (row) => -row.point.time,
      cell: (row) => <Ago ms={row.point.time / 1e6} />,
    },
    { id: "origin", title: "Written by", width: "minmax(6rem, 1fr)", wideOnly: true, value: (row) => row.point.origin || "vehicle" },
  ];
  return (
    <>
      <div class="filters">
        <Search label="Find a series" value={filters["text"] ?? ""} onInput={(text) => filter({ text })} />
      </div>
      <Table
        label="Values"
        rows={shown}
        columns={columns}
        keyOf={(row) => row.id}
        sort={sortOf(filters["sort"], columns.map((each) => each.id)) ?? { by: "series", down: false }}
        onSort={(sort) => filter({ sort: sortText(sort) })}
        onOpen={(row) => onTurn(row.id)}
        rowsMax={12}
        empty={rows.length === 0 ? "This device has no values yet." : "No series fits."}
      />
    </>
  );
}
