// Charts that belong together: history first, what comes live on top, one range and one cursor for all of them.
import { useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { LiveText } from "../logic/bands";
import { LivePoints, type History } from "../logic/series";
import { partsOf, type FieldParts } from "../logic/shadow";
import { nameOf, numberOf, seriesOf, type Point } from "../logic/values";
import { bounds, formatRange, ranged, type Bounds, type Range } from "../state/time";
import { TINTS } from "./plot";
import { SeriesChart } from "./SeriesChart";
import { failing } from "./States";

const TEXTS_MAX = 2000;
const RETRY_MS = 2000;

export interface ChartState {
  /** null: it is still awaited. */
  history: History | null;
  /** Beside the chart: what is to be known of its history, or why there is none. */
  notice: string | null;
  live: LivePoints;
  texts: LiveText[];
  /** Grows with each change. */
  version: number;
}

export interface Charts {
  of: (series: string) => ChartState;
  /** Take in a point that came live; one of a series without a chart is passed over. */
  add: (point: Point) => void;
}

/** A stretch of one series, for a chart that is so many points wide. */
export interface Stretch {
  parts: FieldParts;
  fromMs: number;
  toMs: number;
  pointsMax: number;
}

/** Who knows the past. */
export interface Past {
  /** Throws Refused. */
  ask: (stretch: Stretch) => Promise<History & { notes?: readonly string[] }>;
  /** Whether it can be asked now. */
  answers: boolean;
  /** The time by its clock, in milliseconds. */
  nowMs: () => number;
  /** After how long a range that follows the present is asked for again: what comes late is seen then. */
  againMs: (range: Range) => number;
}

/** Keep up the charts of these series. `pixels` is how wide they are drawn. */
export function useCharts(past: Past, series: readonly string[], range: Range, pixels: number): Charts {
  const states = useRef(new Map<string, ChartState>());
  const [, setTurn] = useState(0);
  const frame = useRef(0);
  const of = (name: string): ChartState => {
    const known = states.current.get(name) ?? { history: null, notice: null, live: new LivePoints(), texts: [], version: 0 };
    states.current.set(name, known);
    return known;
  };
  const change = (name: string, by: Partial<ChartState>): void => {
    const state = of(name);
    states.current.set(name, { ...state, ...by, version: state.version + 1 });
    frame.current ||= requestAnimationFrame(() => {
      frame.current = 0;
      setTurn((before) => before + 1);
    });
  };
  const width = Math.max(200, Math.round(pixels / 200) * 200);
  useEffect(() => {
    if (!past.answers) return;
    let over = false;
    let timer = 0;
    let retryMs = RETRY_MS;
    const read = async (name: string, span: Bounds): Promise<boolean> => {
      const parts = partsOf(name);
      if (parts === null) {
        change(name, { notice: `${name} names no series` });
        return true;
      }
      try {
        const history = await past.ask({ parts, ...span, pointsMax: width });
        if (!over) change(name, { history, notice: history.notes?.[0] ?? null });
        return true;
      } catch (thrown) {
        if (!over) change(name, { notice: `No history: ${failing(thrown).message}. Live values are shown.` });
        return false;
      }
    };
    const load = async (): Promise<void> => {
      const { fromMs, toMs } = bounds(range, past.nowMs());
      const span = { fromMs: Math.floor(fromMs), toMs: Math.ceil(toMs) };
      const told = await Promise.all(series.map((name) => read(name, span)));
      if (over) return;
      // What is lacking is asked for sooner: a cluster that has lost a server answers after some seconds.
      const well = told.every(Boolean);
      const waitMs = well ? past.againMs(range) : retryMs;
      retryMs = well ? RETRY_MS : Math.min(2 * retryMs, past.againMs(range));
      if (!well || range.kind === "last") timer = window.setTimeout(() => void load(), waitMs);
    };
    void load();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [series.join("\n"), formatRange(range), width, past.answers]);
  useEffect(() => () => cancelAnimationFrame(frame.current), []);

  const add = (point: Point): void => {
    const name = seriesOf(point);
    if (!series.includes(name) || point.tombstone) return;
    const state = of(name);
    const tUs = Math.round(point.time / 1000);
    const value = numberOf(point.value);
    if (value !== null && state.history?.kind !== "text") {
      if (!state.live.add(tUs, value)) return;
    } else {
      if (state.texts.some((each) => each.tUs === tUs)) return;
      state.texts.push({ tUs, value: point.value });
      if (state.texts.length > TEXTS_MAX) state.texts.splice(0, TEXTS_MAX / 2);
    }
    change(name, {});
  };
  return { of, add };
}

/** Return where charts are put, and how wide that is. */
export function useWidth(): [RefObject<HTMLDivElement | null>, number] {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const watch = new ResizeObserver(() => setWidth(element.clientWidth));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return [place, width];
}

interface ChartListProps {
  charts: Charts;
  series: readonly string[];
  range: Range;
  nowMs: number;
  /** Units that history does not say. */
  unitOf?: (series: string) => string | undefined;
  onRange: (range: Range) => void;
  onRemove: (series: string) => void;
}

export function ChartList({ charts, series, range, nowMs, unitOf, onRange, onRemove }: ChartListProps) {
  const cursor = useSignal<number | null>(null);
  const { fromMs, toMs } = bounds(range, nowMs);
  return (
    <>
      {series.map((each, index) => {
        const { history, notice, live, texts, version } = charts.of(each);
        const unit = unitOf?.(each);
        return (
          <SeriesChart
            key={each}
            name={nameOf(each)}
            history={history && unit ? { ...history, unit } : history}
            notice={notice}
            live={live}
            texts={texts}
            version={version}
            fromUs={fromMs * 1000}
            toUs={toMs * 1000}
            nowUs={nowMs * 1000}
            cursor={cursor}
            tint={(index % TINTS) + 1}
            onRange={(from, to) => onRange(ranged(from, to, nowMs))}
            onRemove={() => onRemove(each)}
          />
        );
      })}
    </>
  );
}
