// A short table, all of which is in the page.
import type { ComponentChildren } from "preact";

export interface PlainColumn {
  title: string;
  /** Of its cells; the heading stands at the same end. */
  class?: string;
}

export interface PlainRow {
  key: string;
  cells: readonly ComponentChildren[];
  /** Attributes that tell rows apart. */
  data?: Readonly<Record<`data-${string}`, string>>;
}

/** The columns of a table, of which those after the first hold numbers. */
export function numbered(first: string, ...others: string[]): PlainColumn[] {
  return [{ title: first }, ...others.map((title) => ({ title, class: "end number" }))];
}

export function PlainTable({ columns, rows, class: also = "" }: { columns: readonly PlainColumn[]; rows: readonly PlainRow[]; class?: string }) {
  return (
    <table class={`plain ${also}`}>
      <thead>
        <tr>
          {columns.map((each) => (
            <th key={each.title} class={each.class?.startsWith("end") ? "end" : undefined}>
              {each.title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map(({ key, cells, data }) => (
          <tr key={key} {...data}>
            {cells.map((cell, at) => (
              <td key={at} class={columns[at]?.class}>
                {cell}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
