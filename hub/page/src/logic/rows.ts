// Rows of long lists: their order, and which of them are in view. Pure.

export interface Sort {
  by: string;
  down: boolean;
}

type Key = string | number | null;

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Orders rows, and remembers how: ten thousand names are not compared again where none of them has changed. */
export class Order<Row> {
  private keys: Key[] = [];
  private down = false;
  private places: number[] = [];

  /** Return rows in the order of a value, equal ones as they came; nulls stand last either way. */
  of(rows: readonly Row[], value: ((row: Row) => Key) | undefined, down: boolean): Row[] {
    if (value === undefined) return [...rows];
    const keys = rows.map(value);
    const same = down === this.down && keys.length === this.keys.length && keys.every((key, at) => key === this.keys[at]);
    if (!same) {
      this.places = places(keys, down ? -1 : 1);
      this.keys = keys;
      this.down = down;
    }
    return this.places.map((at) => rows[at] as Row);
  }
}

function places(keys: readonly Key[], turn: number): number[] {
  const found = [...keys.keys()];
  found.sort((one, other) => {
    const [a, b] = [keys[one] ?? null, keys[other] ?? null];
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    if (typeof a === "number" && typeof b === "number") return turn * (a - b);
    return turn * collator.compare(String(a), String(b));
  });
  return found;
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
