// Events on a line of time, with the list below it: the line shows where, the list says what.
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { clockText, dayText } from "../logic/text";
import { At } from "./Ago";

export interface TimeEvent {
  id: string;
  ms: number;
  kind: string;
  tone?: "critical" | "warning" | "info";
  text: ComponentChildren;
}

export interface TimeLineProps {
  label: string;
  /** The newest first. */
  events: readonly TimeEvent[];
  fromMs: number;
  toMs: number;
  /** Rows at most; a line says how many more there are. */
  rowsMax?: number;
}

export function TimeLine({ label, events, fromMs, toMs, rowsMax = 100 }: TimeLineProps) {
  const list = useRef<HTMLOListElement>(null);
  const span = Math.max(1, toMs - fromMs);
  const inView = events.filter((each) => each.ms >= fromMs && each.ms <= toMs);
  const shown = inView.slice(0, rowsMax);
  return (
    <div class="time-line">
      <svg class="marks" viewBox="0 0 1000 28" preserveAspectRatio="none" role="img" aria-label={`${label}: ${inView.length}`}>
        <line x1="0" y1="14" x2="1000" y2="14" class="axis" />
        {inView.map((each) => {
          const x = ((each.ms - fromMs) / span) * 1000;
          return (
            <line
              key={each.id}
              x1={x}
              x2={x}
              y1={each.tone === "critical" ? 1 : 5}
              y2={each.tone === "critical" ? 27 : 23}
              class={`mark ${each.tone ?? ""}`}
              onClick={() => list.current?.querySelector(`[data-event="${CSS.escape(each.id)}"]`)?.scrollIntoView({ block: "nearest" })}
            />
          );
        })}
      </svg>
      <div class="ends small quiet" aria-hidden="true">
        <span>{endText(fromMs, span)}</span>
        <span>{endText(toMs, span)}</span>
      </div>
      <ol ref={list} class="events" tabIndex={0} aria-label={label}>
        {shown.map((each) => (
          <li key={each.id} data-event={each.id}>
            <span class="small quiet">
              <At ms={each.ms} />
            </span>
            <strong class={`break kind ${each.tone ?? ""}`}>{each.kind}</strong>
            <span class="break">{each.text}</span>
          </li>
        ))}
        {inView.length > shown.length && <li class="quiet">and {inView.length - shown.length} older ones in this time</li>}
      </ol>
    </div>
  );
}

function endText(ms: number, span: number): string {
  return span > 2 * 86_400_000 ? dayText(ms) : `${dayText(ms).slice(5)} ${clockText(ms, span < 300_000)}`;
}
