// Rows of long lists: their order, and which of them are in view. Pure.

export interface Sort {
  by: string;
  down: boolean;
}

type Key = string | number | null;

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Return rows in the order of a value, equal ones as they came; nulls stand last either way. */
export function ordered<Row>(rows: readonly Row[], value: ((row: Row) => Key) | undefined, down: boolean): Row[] {
  if (value === undefined) return [...rows];
  const keyed = rows.map((row) => ({ row, key: value(row) }));
  const turn = down ? -1 : 1;
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return a.key === b.key ? 0 : a.key === null ? 1 : -1;
    if (typeof a.key === "number" && typeof b.key === "number") return turn * (a.key - b.key);
    return turn * collator.compare(String(a.key), String(b.key));
  });
  return keyed.map((each) => each.row);
}

/** Return the first row in view and the one behind the last, with some around them for quick scrolling. */
export function visible(top: number, height: number, rowHeight: number, count: number, spare = 6): [number, number] {
  const from = Math.max(0, Math.min(Math.floor(top / rowHeight) - spare, count));
  const to = Math.min(count, Math.ceil((top + height) / rowHeight) + spare);
  return [from, Math.max(from, to)];
}

/** Return a sort as text for the URL, `name` or `-name`; and the other way round. */
export function sortText(sort: Sort | null): string {
  return sort === null ? "" : `${sort.down ? "-" : ""}${sort.by}`;
}

export function sortOf(text: string | undefined, ids: readonly string[]): Sort | null {
  const by = (text ?? "").replace(/^-/, "");
  return ids.includes(by) ? { by, down: (text ?? "").startsWith("-") } : null;
}
