// Numbers, values, times and ages as people read them. Pure.

/** Return a number with so many significant digits at most, without trailing zeros. */
export function numberText(value: number, digits = 6): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return sign(String(value));
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e9 || size < 1e-4)) return sign(value.toExponential(Math.min(digits - 1, 3)));
  return sign(String(Number(value.toPrecision(digits))));
}

function sign(text: string): string {
  return text.replace(/^-/, "−");
}

/** Return any value of a point as text; JSON stays JSON. */
export function valueText(value: unknown): string {
  if (value === undefined) return "–";
  if (typeof value === "number") return numberText(value);
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

/** Return a value with its unit. */
export function withUnit(value: unknown, unit?: string): string {
  return unit ? `${valueText(value)}\u202f${unit}` : valueText(value);
}

const STEPS: readonly [number, string][] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/** Return a duration in its two largest units: `2 h 5 min`, `45 s`. */
export function durationText(seconds: number): string {
  let left = Math.max(0, Math.round(seconds));
  const words: string[] = [];
  for (const [size, unit] of STEPS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) words.push(`${count} ${unit}`);
    else if (words.length > 0) break;
    if (words.length === 2) break;
  }
  return words.length === 0 ? "0 s" : words.join(" ");
}

/** Return how old something is, in its largest unit; the future is `in 5 s`. */
export function ageText(ms: number): string {
  const seconds = Math.abs(ms) / 1000;
  const [size, unit] = STEPS.find(([size]) => seconds >= size) ?? [1, "s"];
  const count = `${Math.floor(seconds / size)} ${unit}`;
  return ms < 0 && seconds >= 1 ? `in ${count}` : count;
}

const two = (count: number): string => String(count).padStart(2, "0");

/** Return a day in the browser's zone: `2026-05-01`. */
export function dayText(ms: number): string {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** Return a time of day in the browser's zone: `12:00:05`. */
export function clockText(ms: number, seconds = true): string {
  const at = new Date(ms);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return seconds ? `${text}:${two(at.getSeconds())}` : text;
}

/** Return day and time in the browser's zone. */
export function timeText(ms: number): string {
  return `${dayText(ms)} ${clockText(ms)}`;
}
