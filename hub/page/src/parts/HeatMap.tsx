// How complete devices are, by hours: a canvas as large as the view, over rows of any number.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { colours } from "../look/theme";
import { cellAt, HOUR_STATES, STATE_WORDS, shareText, type HeatRow, type HourState, type Layout } from "../logic/heat";
import { visible } from "../logic/rows";
import { clockText, dayText } from "../logic/text";
import { drawAxis, drawRows, swatch } from "./heat_canvas";

export interface HeatMapProps {
  label: string;
  rows: readonly HeatRow[];
  /** When the first hour begins, in milliseconds; all rows begin there. */
  fromMs: number;
  hours: number;
  /** Enter or a click on a cell. */
  onOpen?: ((id: string, hourMs: number) => void) | undefined;
  /** The rows that are in view, after each change: for those who load as one scrolls. */
  onView?: ((from: number, to: number) => void) | undefined;
  /** What more there is to say of a cell. */
  detail?: ((id: string, hourMs: number) => ComponentChildren) | undefined;
  /** Each row is a day of its own, named by its label: the columns are hours of the day. */
  ofDay?: boolean;
  rowHeight?: number;
  rowsMax?: number;
}

const HOUR_MS = 3_600_000;
const AXIS = 22;

export function HeatMap(props: HeatMapProps) {
  const { rows, fromMs, hours, ofDay = false, rowHeight = 18, rowsMax = 20 } = props;
  const id = useId();
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [top, setTop] = useState(0);
  const [cell, setCell] = useState<{ row: number; hour: number } | null>(null);
  const height = Math.max(1, Math.min(rows.length, rowsMax)) * rowHeight;
  const names = width < 560 ? 84 : 132;
  const layout: Layout = { width, names, rowHeight, hours };
  const [from, to] = visible(top, height, rowHeight, rows.length, 0);
  const drawnColours = colours.value;

  useEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const watch = new ResizeObserver(() => setWidth(element.clientWidth));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  useEffect(() => props.onView?.(from, to), [from, to]);
  useEffect(() => {
    const element = canvas.current;
    if (element === null || width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round((height + AXIS) * ratio);
    const context = element.getContext("2d");
    if (context === null) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height + AXIS);
    drawAxis(context, layout, fromMs, AXIS, ofDay);
    context.save();
    context.translate(0, AXIS);
    drawRows(context, layout, rows, top, height, cell);
    context.restore();
  }, [rows, fromMs, hours, ofDay, width, height, top, cell, drawnColours]);

  const show = (row: number, hour: number): void => {
    const next = {
      row: Math.max(0, Math.min(rows.length - 1, row)),
      hour: Math.max(0, Math.min(hours - 1, hour)),
    };
    setCell(next);
    const element = scroller.current;
    if (element === null) return;
    const at = next.row * rowHeight;
    if (at < element.scrollTop) element.scrollTop = at;
    else if (at + rowHeight > element.scrollTop + height) element.scrollTop = at + rowHeight - height;
  };
  const onKey = (event: KeyboardEvent): void => {
    const { row, hour } = cell ?? { row: from, hour: hours - 1 };
    const page = Math.max(1, Math.floor(height / rowHeight) - 1);
    const steps: Record<string, [number, number]> = {
      ArrowDown: [row + 1, hour],
      ArrowUp: [row - 1, hour],
      ArrowLeft: [row, hour - 1],
      ArrowRight: [row, hour + 1],
      PageDown: [row + page, hour],
      PageUp: [row - page, hour],
      Home: event.ctrlKey ? [0, 0] : [row, 0],
      End: event.ctrlKey ? [rows.length - 1, hours - 1] : [row, hours - 1],
    };
    const step = steps[event.key];
    if (step !== undefined) show(...step);
    else if (event.key === "Enter" && cell !== null) open(cell);
    else if (event.key === "Escape") setCell(null);
    else return;
    event.preventDefault();
  };
  const open = (at: { row: number; hour: number }): void => {
    const row = rows[at.row];
    if (row !== undefined) props.onOpen?.(row.id, fromMs + at.hour * HOUR_MS);
  };
  const pointed = (event: MouseEvent): { row: number; hour: number } | null => {
    const box = canvas.current?.getBoundingClientRect();
    if (box === undefined) return null;
    return cellAt(layout, event.clientX - box.left, event.clientY - box.top - AXIS + top, rows.length);
  };

  const shown = cell === null ? undefined : rows[cell.row];
  const hourMs = fromMs + (cell?.hour ?? 0) * HOUR_MS;
  const state: HourState = (cell && HOUR_STATES[shown?.hours[cell.hour] ?? 0]) || "none";
  return (
    <figure class="heat">
      <Legend />
      <div
        ref={scroller}
        class="heat-scroll"
        role="grid"
        aria-label={`${props.label}, ${rows.length} rows`}
        aria-rowcount={rows.length}
        aria-colcount={hours}
        aria-activedescendant={shown ? `${id}-cell` : undefined}
        tabIndex={0}
        style={{ height: `${height + AXIS}px` }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        onKeyDown={onKey}
        onFocus={() => cell ?? (rows.length > 0 && show(from, hours - 1))}
        onMouseMove={(event) => setCell(pointed(event) ?? cell)}
        onClick={(event) => {
          const at = pointed(event);
          if (at !== null) open(at);
        }}
      >
        <div role="presentation" style={{ height: `${rows.length * rowHeight + AXIS}px` }}>
          <canvas ref={canvas} aria-hidden="true" style={{ width: `${width}px`, height: `${height + AXIS}px` }} />
        </div>
        <div role="row" class="aside" aria-rowindex={(cell?.row ?? 0) + 1}>
          <span role="gridcell" id={`${id}-cell`} aria-colindex={(cell?.hour ?? 0) + 1}>
            {shown ? `${shown.label}, ${ofDay ? "" : `${dayText(hourMs)} `}${clockText(hourMs, false)}: ${STATE_WORDS[state]}` : props.label}
          </span>
        </div>
      </div>
      <figcaption class="reading small" aria-hidden="true">
        {shown ? (
          <>
            <strong class="break">{shown.label}</strong>
            <span class="number">
              {!ofDay && dayText(hourMs)} {clockText(hourMs, false)}–{clockText(hourMs + HOUR_MS, false)}
            </span>
            <span>{STATE_WORDS[state]}</span>
            <span class="quiet">{props.detail?.(shown.id, hourMs) ?? shareText(shown)}</span>
          </>
        ) : (
          <span class="quiet">Point at an hour, or go there with the arrow keys.</span>
        )}
      </figcaption>
    </figure>
  );
}

/** The states' colours and patterns, with their words. */
export function Legend({ states = HOUR_STATES.slice(1) }: { states?: readonly HourState[] }) {
  return (
    <ul class="legend small" aria-label="Legend">
      {states.map((each) => (
        <li key={each} title={STATE_WORDS[each]}>
          <Swatch state={each} /> {each}
        </li>
      ))}
    </ul>
  );
}

function Swatch({ state }: { state: HourState }) {
  const ref = useRef<HTMLCanvasElement>(null);
  const drawnColours = colours.value;
  useEffect(() => {
    const context = ref.current?.getContext("2d");
    if (context) swatch(context, state, 36, 24);
  }, [state, drawnColours]);
  return <canvas ref={ref} width={36} height={24} class="swatch" aria-hidden="true" />;
}
