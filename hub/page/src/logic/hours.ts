// Why an hour is not complete, in words: the report of the service `hours`. Pure.

export interface SeqRange {
  lane: string;
  epoch: number;
  low: number;
  /** null: without an end. */
  high: number | null;
  reason?: string;
}

export interface HourReport {
  /** UTC, as in 2026-05-01T12:00Z. */
  hour: string;
  state: string;
  missing: readonly SeqRange[];
  explained: readonly SeqRange[];
  why: string;
}

const SHOWN_MAX = 4;

/** Return the reasons, each a sentence's part; long lists end with how many more there are. */
export function reasonsOf(report: HourReport): string[] {
  const missing = report.missing.map((each) => `${rangeText(each)} missing`);
  const given = report.explained.map((each) => `${rangeText(each)} will not come: ${each.reason ?? "no reason given"}`);
  return [...cut(missing), ...cut(given), ...(report.why ? [report.why] : [])];
}

function rangeText({ lane, low, high, epoch }: SeqRange): string {
  const range = high === null ? `${low} and later` : low === high ? String(low) : `${low}–${high}`;
  return `${lane} ${range} (epoch ${epoch})`;
}

function cut(texts: readonly string[]): string[] {
  if (texts.length <= SHOWN_MAX) return [...texts];
  return [...texts.slice(0, SHOWN_MAX), `${texts.length - SHOWN_MAX} more`];
}
