// A table of any length: the rows in view alone are in the page. Sorted by a column, moved through by keyboard.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { Order, visible, type Sort } from "../logic/rows";

export interface Column<Row> {
  id: string;
  title: string;
  /** Sorts the rows, and is shown where there is no `cell`; null stands last either way. */
  value: (row: Row) => string | number | null;
  cell?: (row: Row) => ComponentChildren;
  /** A track of the grid, such as `8rem` or `minmax(6rem, 2fr)`. */
  width?: string;
  align?: "end";
  sortable?: boolean;
  /** Left out where the table is narrower than 640 px. */
  wideOnly?: boolean;
}

export interface TableProps<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  keyOf: (row: Row) => string;
  sort: Sort | null;
  onSort: (sort: Sort) => void;
  /** Enter or a click on a row. */
  onOpen?: ((row: Row) => void) | undefined;
  /** The key of the row that is open. */
  open?: string | null;
  /** Shown in place of rows where there are none. */
  empty: ComponentChildren;
  rowHeight?: number;
  /** Rows that are seen at once at most; more scroll. */
  rowsMax?: number;
}

const NARROW = 640;

export function Table<Row>(props: TableProps<Row>) {
  const { rows, keyOf, sort, rowHeight = 40, rowsMax = 15 } = props;
  const id = useId();
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [narrow, setNarrow] = useState(false);
  const [activeKey, setActiveKey] = useState<string | null>(null);
  const columns = narrow ? props.columns.filter((each) => !each.wideOnly) : props.columns;
  const by = props.columns.find((each) => each.id === sort?.by);
  const order = useRef(new Order<Row>());
  const sorted = useMemo(() => order.current.of(rows, by?.value, sort?.down ?? false), [rows, by, sort?.down]);
  const height = Math.min(sorted.length, rowsMax) * rowHeight;
  const [from, to] = visible(top, height, rowHeight, sorted.length);
  const found = activeKey === null ? -1 : sorted.findIndex((each) => keyOf(each) === activeKey);
  const active = found < 0 ? null : found;

  useEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const watch = new ResizeObserver(() => setNarrow(element.clientWidth < NARROW));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);

  const move = (to: number): void => {
    const row = sorted[Math.max(0, Math.min(sorted.length - 1, to))];
    const element = scroller.current;
    if (row === undefined || element === null) return;
    setActiveKey(keyOf(row));
    const at = Math.max(0, Math.min(sorted.length - 1, to)) * rowHeight;
    if (at < element.scrollTop) element.scrollTop = at;
    else if (at + rowHeight > element.scrollTop + height) element.scrollTop = at + rowHeight - height;
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.target !== event.currentTarget) return;
    const page = Math.max(1, Math.floor(height / rowHeight) - 1);
    const at = active ?? -1;
    const steps: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: sorted.length - 1,
    };
    const row = active === null ? undefined : sorted[active];
    if (event.key in steps) move(steps[event.key] ?? 0);
    else if ((event.key === "Enter" || event.key === " ") && row !== undefined && props.onOpen) props.onOpen(row);
    else return;
    event.preventDefault();
  };

  const tracks = columns.map((each) => each.width ?? "minmax(5rem, 1fr)").join(" ");
  const style = { gridTemplateColumns: tracks };
  return (
    <div
      ref={scroller}
      class="table"
      role="grid"
      aria-label={props.label}
      aria-rowcount={sorted.length + 1}
      aria-activedescendant={active !== null && active >= from && active < to ? `${id}-${active}` : undefined}
      tabIndex={0}
      style={{ maxHeight: height === 0 ? undefined : `calc(${height}px + var(--row) + 2px)` }}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown={onKey}
      onFocus={(event) => {
        if (active === null && event.target === event.currentTarget) move(from);
      }}
    >
      <div role="rowgroup" class="table-head">
        <div role="row" aria-rowindex={1} style={style}>
          {columns.map((each) => (
            <Head key={each.id} column={each} sort={sort} onSort={props.onSort} />
          ))}
        </div>
      </div>
      <div role="rowgroup" class="table-body" style={{ height: `${sorted.length * rowHeight}px` }}>
        {sorted.slice(from, to).map((row, offset) => {
          const at = from + offset;
          const key = keyOf(row);
          return (
            <div
              key={key}
              id={`${id}-${at}`}
              role="row"
              aria-rowindex={at + 2}
              aria-selected={props.open === key ? true : undefined}
              class={`${at === active ? "active" : ""} ${props.onOpen ? "opens" : ""}`}
              style={{ ...style, height: `${rowHeight}px`, transform: `translateY(${at * rowHeight}px)` }}
              onClick={(event) => {
                if ((event.target as Element).closest("a, button, input, select")) return;
                setActiveKey(key);
                props.onOpen?.(row);
              }}
            >
              {columns.map((each) => (
                <div key={each.id} role="gridcell" class={each.align === "end" ? "end number" : ""}>
                  {each.cell ? each.cell(row) : (each.value(row) ?? "–")}
                </div>
              ))}
            </div>
          );
        })}
      </div>
      {sorted.length === 0 && (
        <div role="rowgroup">
          <div role="row">
            <div role="gridcell" class="table-empty">
              {props.empty}
            </div>
          </div>
        </div>
      )}
    </div>
  );
}

interface HeadProps<Row> {
  column: Column<Row>;
  sort: Sort | null;
  onSort: (sort: Sort) => void;
}

function Head<Row>({ column, sort, onSort }: HeadProps<Row>) {
  const sorted = sort?.by === column.id;
  const said = !sorted ? undefined : sort.down ? "descending" : "ascending";
  const side = column.align === "end" ? "end" : "";
  if (column.sortable === false)
    return (
      <div role="columnheader" class={side}>
        {column.title}
      </div>
    );
  return (
    <div role="columnheader" class={side} aria-sort={said}>
      <button type="button" onClick={() => onSort({ by: column.id, down: sorted ? !sort.down : false })}>
        {column.title}
        <span aria-hidden="true" class="arrow">
          {!sorted ? "" : sort.down ? "▼" : "▲"}
        </span>
      </button>
    </div>
  );
}
