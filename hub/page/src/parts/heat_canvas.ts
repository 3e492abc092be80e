// How hours look on a canvas: a colour and a pattern for each state, so that either is enough.
import { colour } from "../look/theme";
import { HOUR_STATES, hourLeft, labelStep, type HeatRow, type HourState, type Layout } from "../logic/heat";
import { clockText, dayText } from "../logic/text";

const HOUR_MS = 3_600_000;

/** Fill a rectangle with a state's colour and pattern. Narrow ones have the colour alone. */
export function fillState(
  context: CanvasRenderingContext2D,
  state: HourState,
  ...[x, y, width, height]: [number, number, number, number]
): void {
  const ink = colour(`state-${state}`);
  const open = state === "silent" || state === "waiting";
  context.fillStyle = ink;
  if (state === "silent") context.globalAlpha = 0.35;
  context.fillRect(x, y, width, height);
  context.globalAlpha = 1;
  if (width < 3.5 || state === "none" || state === "complete") return;
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = state === "silent" ? ink : colour("surface");
  context.fillStyle = colour("surface");
  context.lineWidth = 1.25;
  context.beginPath();
  if (open) {
    // Slanted lines: waiting rises, silent falls. They go on from cell to cell.
    const slope = state === "waiting" ? -1 : 1;
    const begin = Math.floor((x - height) / 6) * 6;
    for (let at = begin; at < x + width + height; at += 6) {
      context.moveTo(at, slope > 0 ? y : y + height);
      context.lineTo(at + height, slope > 0 ? y + height : y);
    }
  } else if (state === "explained") {
    for (let at = Math.floor(x / 6) * 6 + 3; at < x + width + 2; at += 6) {
      context.moveTo(at + 1.4, y + height / 2);
      context.arc(at, y + height / 2, 1.4, 0, 7);
    }
    context.fill();
  } else {
    context.moveTo(x, y + height / 2);
    context.lineTo(x + width, y + height / 2);
  }
  context.stroke();
  context.restore();
}

/** Draw one sample of a state. */
export function swatch(context: CanvasRenderingContext2D, state: HourState, width: number, height: number): void {
  context.clearRect(0, 0, width, height);
  context.save();
  context.scale(2, 2);
  fillState(context, state, 0, 0, width / 2, height / 2);
  context.restore();
}

/** Draw the rows in view. `top` is how far they are scrolled, in pixels; one cell is framed. */
export function drawRows(
  context: CanvasRenderingContext2D,
  layout: Layout,
  rows: readonly HeatRow[],
  top: number,
  height: number,
  cell: { row: number; hour: number } | null,
): void {
  const { rowHeight, names, width, hours } = layout;
  context.save();
  context.beginPath();
  context.rect(0, 0, width, height);
  context.clip();
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  const first = Math.max(0, Math.floor(top / rowHeight));
  const last = Math.min(rows.length, Math.ceil((top + height) / rowHeight));
  for (let at = first; at < last; at += 1) {
    const row = rows[at];
    if (row === undefined) continue;
    const y = at * rowHeight - top;
    context.fillStyle = colour(cell?.row === at ? "accent" : "text");
    context.fillText(fitted(context, row.label, names - 10), 2, y + rowHeight / 2);
    // One fill for each stretch of one state, not for each hour.
    for (let from = 0; from < hours; ) {
      const code = row.hours[from] ?? 0;
      let to = from + 1;
      while (to < hours && (row.hours[to] ?? 0) === code) to += 1;
      const [left, right] = [hourLeft(layout, from), hourLeft(layout, to)];
      fillState(context, HOUR_STATES[code] ?? "none", left, y + 1, right - left, rowHeight - 2);
      from = to;
    }
  }
  const each = hourLeft(layout, 1) - hourLeft(layout, 0);
  if (each >= 7) {
    context.fillStyle = colour("surface");
    for (let hour = 1; hour < hours; hour += 1) context.fillRect(hourLeft(layout, hour) - 0.5, 0, 1, height);
  }
  if (cell !== null) {
    context.strokeStyle = colour("text");
    context.lineWidth = 2;
    const left = hourLeft(layout, cell.hour);
    context.strokeRect(left, cell.row * rowHeight - top + 1, Math.max(3, each), rowHeight - 2);
  }
  context.restore();
}

/** Draw the hours' labels above the rows: days where they fit, else times of day. */
export function drawAxis(
  context: CanvasRenderingContext2D,
  layout: Layout,
  fromMs: number,
  height: number,
  clocksOnly = false,
): void {
  const each = (layout.width - layout.names) / Math.max(1, layout.hours);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  const step = labelStep(each, 56);
  let free = -Infinity;
  for (let hour = 0; hour < layout.hours; hour += 1) {
    const ms = fromMs + hour * HOUR_MS;
    const ofDay = new Date(ms).getHours();
    const index = step > 24 ? Math.floor((ms - new Date(ms).getTimezoneOffset() * 60_000) / HOUR_MS) : ofDay;
    if (index % step !== 0) continue;
    const text = ofDay === 0 && !clocksOnly ? dayText(ms).slice(5) : clockText(ms, false);
    const x = hourLeft(layout, hour);
    if (x < free || x + context.measureText(text).width > layout.width) continue;
    context.fillStyle = colour("text-quiet");
    context.fillText(text, x, height / 2 - 1);
    context.fillStyle = colour("line-strong");
    context.fillRect(x, height - 5, 1, 4);
    free = x + context.measureText(text).width + 8;
  }
}

function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}
