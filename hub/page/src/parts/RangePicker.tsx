// The one time range of a screen: the last so long, a step back or forth, from and to.
import { useState } from "preact/hooks";
import { bounds, LAST_CHOICES, spoken, type Range } from "../state/time";
import { Field } from "./forms";

export interface RangePickerProps {
  range: Range;
  onChange: (range: Range) => void;
}

export function RangePicker({ range, onChange }: RangePickerProps) {
  const [open, setOpen] = useState(false);
  const step = (direction: number): void => {
    const { fromMs, toMs } = bounds(range, Date.now());
    const by = ((toMs - fromMs) / 2) * direction;
    if (toMs + by >= Date.now()) onChange({ kind: "last", seconds: Math.round((toMs - fromMs) / 1000) });
    else onChange({ kind: "between", fromMs: fromMs + by, toMs: toMs + by });
  };
  const choices = LAST_CHOICES.map((seconds) => ({ value: String(seconds), text: `Last ${spoken(seconds)}` }));
  const chosen = range.kind === "last" ? String(range.seconds) : "between";
  if (range.kind === "last" && !LAST_CHOICES.includes(range.seconds))
    choices.unshift({ value: chosen, text: `Last ${spoken(range.seconds)}` });
  return (
    <div class="range" role="group" aria-label="Time range">
      <button type="button" aria-label="Earlier" title="Earlier" onClick={() => step(-1)}>
        ◀
      </button>
      <select
        aria-label="Time range"
        value={chosen}
        onChange={(event) => {
          const value = event.currentTarget.value;
          if (value === "between") setOpen(true);
          else {
            setOpen(false);
            onChange({ kind: "last", seconds: Number(value) });
          }
        }}
      >
        {choices.map((each) => (
          <option key={each.value} value={each.value} selected={each.value === chosen}>
            {each.text}
          </option>
        ))}
        <option value="between" selected={chosen === "between"}>
          From … to …
        </option>
      </select>
      <button type="button" aria-label="Later" title="Later" disabled={range.kind === "last"} onClick={() => step(1)}>
        ▶
      </button>
      {(open || range.kind === "between") && <Between range={range} onChange={onChange} />}
    </div>
  );
}

function Between({ range, onChange }: RangePickerProps) {
  const { fromMs, toMs } = bounds(range, Date.now());
  const set = (from: string, to: string): void => {
    const [begin, end] = [Date.parse(from), Date.parse(to)];
    if (begin < end) onChange({ kind: "between", fromMs: begin, toMs: end });
  };
  const [from, to] = [local(fromMs), local(toMs)];
  return (
    <div class="between">
      <Field label="From">
        {(tied) => (
          <input {...tied} type="datetime-local" value={from} onChange={(event) => set(event.currentTarget.value, to)} />
        )}
      </Field>
      <Field label="To">
        {(tied) => (
          <input {...tied} type="datetime-local" value={to} onChange={(event) => set(from, event.currentTarget.value)} />
        )}
      </Field>
    </div>
  );
}

/** Return a time as `datetime-local` has it: the browser's zone, to the minute. */
function local(ms: number): string {
  const at = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return at.toISOString().slice(0, 16);
}
