// The newest value of each series, with its age; those that are chosen have a chart.
import { sortOf, sortText, type Sort } from "../logic/rows";
import { valueText, withUnit } from "../logic/text";
import { nameOf, type Point } from "../logic/values";
import { Ago } from "./Ago";
import { Search } from "./forms";
import { Table, type Column } from "./Table";

export interface ValueRow {
  id: string;
  point: Point;
}

export interface ValuesTableProps {
  rows: readonly ValueRow[];
  /** Why there are no rows, whatever is searched for. */
  none: string | null;
  series: readonly string[];
  onTurn: (series: string) => void;
  text: string;
  onText: (text: string) => void;
  /** As `sortText` says it. */
  sort: string;
  onSort: (sort: string) => void;
  unitOf: (row: ValueRow) => string | undefined;
  /** How far the clock that stamps values is ahead of the browser's, in milliseconds. */
  aheadMs?: number;
  rowsMax: number;
}

export function ValuesTable({ rows, none, series, onTurn, text, onText, sort, onSort, unitOf, aheadMs = 0, rowsMax }: ValuesTableProps) {
  const words = text.toLowerCase();
  const columns: Column<ValueRow>[] = [
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
      cell: (row) => <span title={valueText(row.point.value)}>{withUnit(row.point.value, unitOf(row))}</span>,
    },
    {
      id: "age",
      title: "Age",
      width: "4.6rem",
      align: "end",
      value: (row) => -row.point.time,
      cell: (row) => <Ago ms={row.point.time / 1e6 - aheadMs} />,
    },
    { id: "origin", title: "Written by", width: "minmax(6rem, 1fr)", wideOnly: true, value: (row) => row.point.origin || "vehicle" },
  ];
  const first: Sort = { by: "series", down: false };
  return (
    <>
      <div class="filters">
        <Search label="Find a series" value={text} onInput={onText} />
      </div>
      <Table
        label="Values"
        rows={rows.filter((each) => nameOf(each.id).toLowerCase().includes(words))}
        columns={columns}
        keyOf={(row) => row.id}
        sort={sortOf(sort, columns.map((each) => each.id)) ?? first}
        onSort={(to) => onSort(sortText(to))}
        onOpen={(row) => onTurn(row.id)}
        rowsMax={rowsMax}
        empty={none ?? "No series fits."}
      />
    </>
  );
}
