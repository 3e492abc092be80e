// One series over time: history first, live readings on top, gaps drawn as gaps with their reason.
//
// The plot is a slider along time: arrow keys move the cursor that all charts of a screen share.
import { useComputed, type Signal } from "@preact/signals";
import { useEffect, useId, useMemo, useRef } from "preact/hooks";
import { colours } from "../look/theme";
import { bandsIn, valuesOf, type Band, type LiveText } from "../logic/bands";
import { bandReading, numberAt, summary, type Reading } from "../logic/reading";
import { drawn, gapsIn, NOTHING, type Drawn, type History, type LivePoints } from "../logic/series";
import { clockText, dayText } from "../logic/text";
import { Plot, TINTS } from "./plot";

export interface SeriesChartProps {
  name: string;
  /** null: it is still awaited. */
  history: History | null;
  /** In place of history: why there is none. Live values are shown all the same. */
  notice?: string | null | undefined;
  live: LivePoints;
  texts: readonly LiveText[];
  /** Changes whenever `live` or `texts` have. */
  version: number;
  fromUs: number;
  toUs: number;
  nowUs: number;
  /** Where all charts of the screen have their cursor, in microseconds. */
  cursor: Signal<number | null>;
  onRange: (fromMs: number, toMs: number) => void;
  /** Which of the series' colours, from 1. */
  tint: number;
  onRemove?: (() => void) | undefined;
}

export function SeriesChart(props: SeriesChartProps) {
  const { name, live, texts, version, fromUs, toUs, nowUs, cursor } = props;
  const id = useId();
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<Plot | null>(null);
  const history = props.history ?? NOTHING;
  const textual = history.kind === "text" || (history.t_us.length === 0 && live.t.length === 0 && texts.length > 0);
  const unit = history.unit ?? undefined;
  const points = useMemo(
    () => (textual ? null : drawn(history, live, fromUs, toUs)),
    [textual, history, version, fromUs, toUs],
  );
  const bands = useMemo(
    () => (textual ? bandsIn(history, texts, fromUs, toUs, Math.min(nowUs, toUs)) : []),
    [textual, history, version, fromUs, toUs, nowUs],
  );
  const gaps = useMemo(() => gapsIn(history.gaps, fromUs, toUs), [history, fromUs, toUs]);
  const at = cursor.value;
  const reading = readingAt(at, points, bands, history, fromUs, toUs, unit);
  const newest = useNewest(points, bands, unit);
  const shownColours = colours.value;

  const onRange = useRef(props.onRange);
  onRange.current = props.onRange;
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const made = new Plot(element, {
      textual,
      tint: props.tint,
      onCursor: (seconds) => (cursor.value = seconds === null ? null : Math.round(seconds * 1e6)),
      onRange: (from, to) => onRange.current(from * 1000, to * 1000),
    });
    plot.current = made;
    return () => {
      made.end();
      plot.current = null;
    };
  }, [textual, props.tint]);
  useEffect(() => {
    plot.current?.show({ points, bands, gaps, fromUs, toUs });
  }, [points, bands, gaps, fromUs, toUs, textual, props.tint]);
  useEffect(() => plot.current?.redraw(), [shownColours]);
  const cursorAt = useComputed(() => cursor.value);
  useEffect(() => plot.current?.point(cursorAt.value), [cursorAt.value, points, bands, fromUs, toUs]);

  const onKey = (event: KeyboardEvent): void => {
    const span = toUs - fromUs;
    const here = at ?? toUs;
    const step = span / (event.shiftKey ? 20 : 200);
    const moves: Record<string, number> = {
      ArrowLeft: here - step,
      ArrowRight: here + step,
      Home: fromUs,
      End: toUs,
    };
    const zooms: Record<string, [number, number]> = {
      "+": [here - span / 4, here + span / 4],
      "=": [here - span / 4, here + span / 4],
      "-": [here - span, here + span],
      PageUp: [fromUs - span / 2, toUs - span / 2],
      PageDown: [fromUs + span / 2, toUs + span / 2],
    };
    const move = moves[event.key];
    const zoom = zooms[event.key];
    if (move !== undefined) cursor.value = Math.round(Math.max(fromUs, Math.min(toUs, move)));
    else if (zoom !== undefined) props.onRange(zoom[0] / 1000, zoom[1] / 1000);
    else if (event.key === "Escape") cursor.value = null;
    else return;
    event.preventDefault();
  };

  const said = summary(name, points, bands, history, fromUs, toUs, unit);
  const shown = reading ?? newest;
  return (
    <figure class="chart" data-series={name}>
      <figcaption>
        <h3 class="break">
          <span class={`key tint-${props.tint}`} aria-hidden="true" />
          {name}
          {unit && <span class="quiet"> in {unit}</span>}
        </h3>
        <p class="reading number">
          <strong class="break" data-reading={reading === null ? "newest" : "cursor"}>
            {shown.text}
          </strong>
          <span class="quiet small">{whenText(reading, newest, at)}</span>
        </p>
        {props.onRemove && (
          <button type="button" class="plain" aria-label={`Take away ${name}`} onClick={props.onRemove}>
            ✕
          </button>
        )}
      </figcaption>
      {props.notice && (
        <p class="notice small" role="status">
          {props.notice}
        </p>
      )}
      <div
        ref={place}
        class={`plot ${textual ? "textual" : ""}`}
        role="slider"
        tabIndex={0}
        aria-label={`${name}, cursor`}
        aria-describedby={`${id}-summary`}
        aria-valuemin={Math.round(fromUs / 1e6)}
        aria-valuemax={Math.round(toUs / 1e6)}
        aria-valuenow={Math.round((at ?? toUs) / 1e6)}
        aria-valuetext={`${clockText((at ?? toUs) / 1000)}: ${shown.text}`}
        onKeyDown={onKey}
      >
        {props.history === null && !props.notice && <span class="over quiet small">Loading history …</span>}
        {props.history !== null && isBare(points, bands) && (
          <span class="over quiet small">{gaps.length > 0 ? "" : "No readings in this time"}</span>
        )}
      </div>
      {bands.length > 0 && (
        <ul class="texts small quiet" aria-hidden="true">
          {valuesOf(bands).slice(0, TINTS).map((text, order) => (
            <li key={text} class="break">
              <span class={`key tint-${(order % TINTS) + 1}`} />
              {text}
            </li>
          ))}
        </ul>
      )}
      {gaps.length > 0 && (
        <ul class="gaps small quiet" aria-hidden="true">
          {[...new Set(gaps.map((each) => each[2]))].map((why) => (
            <li key={why} class={`gap-${why}`}>
              {why}
            </li>
          ))}
        </ul>
      )}
      <p id={`${id}-summary`} class="aside">
        {said}
      </p>
    </figure>
  );
}

function isBare(points: Drawn | null, bands: readonly Band[]): boolean {
  return points === null ? bands.length === 0 : points.count === 0;
}

function readingAt(
  at: number | null,
  points: Drawn | null,
  bands: readonly Band[],
  history: History,
  fromUs: number,
  toUs: number,
  unit?: string,
): Reading | null {
  if (at === null || at < fromUs || at > toUs) return null;
  if (points === null) return bandReading(bands, history, at);
  const reach = points.sparse ? (toUs - fromUs) / 20 : (toUs - fromUs) / 50;
  return numberAt(points, history, at, reach, unit);
}

function useNewest(points: Drawn | null, bands: readonly Band[], unit?: string): Reading {
  return useMemo(() => {
    if (points === null) {
      const last = bands.at(-1);
      return last ? { text: last.text, tUs: last.fromUs, gap: null } : { text: "–", tUs: null, gap: null };
    }
    const last = points.t.at(-1);
    return last === undefined || points.count === 0
      ? { text: "–", tUs: null, gap: null }
      : numberAt(points, NOTHING, last * 1e6, Infinity, unit);
  }, [points, bands, unit]);
}

function whenText(reading: Reading | null, newest: Reading, at: number | null): string {
  const tUs = reading === null ? newest.tUs : (reading.tUs ?? at);
  if (tUs === null) return "";
  return `${reading === null ? "newest, " : ""}${dayText(tUs / 1000).slice(5)} ${clockText(tUs / 1000)}`;
}
