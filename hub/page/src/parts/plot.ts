// A uPlot of one series: minimum and maximum as a band, gaps hatched beneath it, texts as bands of colour.
import uPlot from "uplot";
import { colour, thin } from "../look/theme";
import { valuesOf, type Band } from "../logic/bands";
import type { Drawn } from "../logic/series";
import { clockText, dayText, numberText } from "../logic/text";
import { fillState } from "./heat_canvas";
import type { HourState } from "../logic/heat";

export interface PlotOptions {
  textual: boolean;
  tint: number;
  /** Seconds since 1970; null where the pointer has left. */
  onCursor: (seconds: number | null) => void;
  onRange: (fromSeconds: number, toSeconds: number) => void;
}

export interface Content {
  points: Drawn | null;
  bands: readonly Band[];
  gaps: readonly (readonly [number, number, string])[];
  fromUs: number;
  toUs: number;
}

const HEIGHT = 174;
const TEXT_HEIGHT = 92;
const DAY = 86_400;
export const TINTS = 6;

export class Plot {
  private readonly chart: uPlot;
  private readonly watch: ResizeObserver;
  private content: Content = { points: null, bands: [], gaps: [], fromUs: 0, toUs: 1 };

  constructor(
    private readonly place: HTMLElement,
    private readonly options: PlotOptions,
  ) {
    this.chart = new uPlot(this.layout(), [[], [], []], place);
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(place);
    this.chart.over.addEventListener("mouseleave", () => options.onCursor(null));
  }

  show(content: Content): void {
    this.content = content;
    const { points } = content;
    const edges = [content.fromUs / 1e6, content.toUs / 1e6];
    this.chart.setData(points === null ? [edges, [null, null], [null, null]] : [points.t, points.high, points.low]);
  }

  redraw(): void {
    this.chart.redraw(true, true);
  }

  /** Put the cursor to a time (microseconds); null takes it away. */
  point(tUs: number | null): void {
    const { fromUs, toUs } = this.content;
    const left = tUs === null || tUs < fromUs || tUs > toUs ? -10 : this.chart.valToPos(tUs / 1e6, "x");
    if (Math.abs((this.chart.cursor.left ?? -10) - left) < 0.5) return;
    this.chart.setCursor({ left, top: this.chart.cursor.top ?? 0 }, false);
  }

  end(): void {
    this.watch.disconnect();
    this.chart.destroy();
  }

  private fit(): void {
    const width = this.place.clientWidth;
    if (width > 0) this.chart.setSize({ width, height: this.height });
  }

  private get height(): number {
    return this.options.textual ? TEXT_HEIGHT : HEIGHT;
  }

  private layout(): uPlot.Options {
    const ink = (): string => colour(`series-${this.options.tint}`);
    const lines = uPlot.paths.linear?.();
    const line: uPlot.Series = {
      stroke: ink,
      width: 1.5,
      spanGaps: false,
      paths: (chart, ...rest) => (this.content.points?.sparse ? null : (lines?.(chart, ...rest) ?? null)),
      points: { show: () => this.isDotted(), size: 6, stroke: ink, fill: ink, width: 1 },
    };
    const axis: uPlot.Axis = {
      stroke: () => colour("text-quiet"),
      font: this.font(),
      lineGap: 1.25,
      grid: { stroke: () => colour("line"), width: 1 },
      ticks: { stroke: () => colour("line-strong"), width: 1, size: 4 },
    };
    return {
      width: this.place.clientWidth || 300,
      height: this.height,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: true, range: () => [this.content.fromUs / 1e6, this.content.toUs / 1e6] },
        y: { range: (_, min, max) => (this.options.textual ? [0, 1] : roomy(min, max)) },
      },
      series: [{}, line, { ...line, points: { ...line.points, show: () => this.isDotted() && this.isBanded() } }],
      bands: [{ series: [1, 2], fill: () => thin(ink(), 0.3) }],
      axes: [
        { ...axis, size: 40, gap: 4, space: 66, values: (_, splits, __, ___, incr) => timeLabels(splits, incr) },
        this.options.textual
          ? { ...axis, size: 58, values: () => [], splits: () => [], grid: { show: false }, ticks: { show: false } }
          : { ...axis, size: 58, gap: 4, space: 34, values: (_, splits) => splits.map((each) => numberText(each, 5)) },
      ],
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false },
        points: { size: 8, width: 2, show: !this.options.textual },
        focus: { prox: -1 },
      },
      hooks: {
        drawAxes: [(chart) => this.beneath(chart)],
        setCursor: [(chart) => this.pointed(chart)],
        setSelect: [(chart) => this.selected(chart)],
      },
    };
  }

  private font(): string {
    return `12px ${getComputedStyle(document.body).fontFamily}`;
  }

  private isDotted(): boolean {
    const { points } = this.content;
    return points !== null && (points.sparse || points.count < this.place.clientWidth / 12);
  }

  private isBanded(): boolean {
    return this.content.points?.banded ?? false;
  }

  private pointed(chart: uPlot): void {
    const left = chart.cursor.left ?? -1;
    if (left >= 0) this.options.onCursor(chart.posToVal(left, "x"));
  }

  private selected(chart: uPlot): void {
    const { left, width } = chart.select;
    if (width < 6) return;
    const [from, to] = [chart.posToVal(left, "x"), chart.posToVal(left + width, "x")];
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.options.onRange(from, to);
  }

  /** Draw what lies beneath the lines: gaps with their reasons, and texts. */
  private beneath(chart: uPlot): void {
    const { ctx: context, bbox } = chart;
    const ratio = uPlot.pxRatio;
    context.save();
    context.beginPath();
    context.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    context.clip();
    context.font = `${12 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    const x = (tUs: number): number => chart.valToPos(tUs / 1e6, "x", true);
    for (const [from, to, why] of this.content.gaps) this.gap(context, bbox, x(from), x(to), why, ratio);
    const order = valuesOf(this.content.bands);
    for (const each of this.content.bands)
      this.band(context, bbox, x(each.fromUs), x(each.toUs), each.text, order.indexOf(each.text), ratio);
    context.restore();
  }

  private gap(
    context: CanvasRenderingContext2D,
    bbox: uPlot.BBox,
    left: number,
    right: number,
    why: string,
    ratio: number,
  ): void {
    const width = Math.max(ratio, right - left);
    const known: HourState = why === "waiting" || why === "explained" || why === "silent" ? why : "silent";
    context.save();
    context.fillStyle = thin(colour(`state-${known}`), 0.14);
    context.fillRect(left, bbox.top, width, bbox.height);
    // A strip at the foot has the state's full colour and pattern, as in the heat map.
    context.scale(ratio, ratio);
    fillState(context, known, left / ratio, (bbox.top + bbox.height) / ratio - 7, width / ratio, 7);
    context.restore();
    this.label(context, why, left, right, bbox.top + bbox.height - 16 * ratio, colour("text"), ratio);
  }

  private band(
    context: CanvasRenderingContext2D,
    bbox: uPlot.BBox,
    left: number,
    right: number,
    text: string,
    order: number,
    ratio: number,
  ): void {
    const ink = colour(`series-${(order % TINTS) + 1}`);
    const [top, height] = [bbox.top + 4 * ratio, bbox.height - 12 * ratio];
    const width = Math.max(ratio, right - left);
    context.fillStyle = thin(ink, 0.28);
    context.fillRect(left, top, width, height);
    context.fillStyle = ink;
    context.fillRect(left, top, Math.min(width, 3 * ratio), height);
    context.fillRect(left, top + height - 3 * ratio, width, 3 * ratio);
    this.label(context, text, left + 2 * ratio, right, top + height / 2, colour("text"), ratio);
  }

  /** Write a word where it has room, kept in view. */
  private label(
    context: CanvasRenderingContext2D,
    text: string,
    left: number,
    right: number,
    y: number,
    ink: string,
    ratio: number,
  ): void {
    const begin = Math.max(left, this.chart.bbox.left) + 5 * ratio;
    const room = Math.min(right, this.chart.bbox.left + this.chart.bbox.width) - begin - 3 * ratio;
    let shown = text.length > 60 ? `${text.slice(0, 60)}…` : text;
    while (shown.length > 2 && context.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
    if (shown.length < Math.min(3, text.length) || context.measureText(shown).width > room) return;
    context.fillStyle = ink;
    context.fillText(shown, begin, y);
  }
}

/** Return a range with room above and below; a flat line lies in its middle. */
function roomy(min: number | null, max: number | null): [number, number] {
  if (min === null || max === null) return [0, 1];
  const room = (max - min) * 0.08 || Math.abs(max) * 0.1 || 1;
  return [min - room, max + room];
}

/** Return labels of times in the browser's zone: the day where one begins, and at the first. */
export function timeLabels(splits: readonly number[], incr: number): string[] {
  let day = "";
  return splits.map((each) => {
    const ms = each * 1000;
    const [of, clock] = [dayText(ms), clockText(ms, incr < 60)];
    const begins = of !== day;
    day = of;
    if (incr >= DAY) return of.slice(incr >= 28 * DAY ? 0 : 5);
    return begins ? `${clock}\n${of.slice(5)}` : clock;
  });
}
