// The shadow of a device: what is desired, what is so, and what differs (docs/shadow.md). Pure.

export interface Revision {
  number: number;
  time: string;
  /** JSON; null where the document was deleted. */
  body: string | null;
}

export type Part = "desired" | "reported" | "config" | "meta";
export type Documents = Partial<Record<Part, readonly Revision[]>>;

export interface Difference {
  desired: unknown;
  config?: unknown;
  reported?: unknown;
  since?: string;
  why: string;
  by?: string;
  at?: string;
}

export interface Meta {
  desired?: { revision: number; time: string } | null;
  delta?: Record<string, Difference>;
  refused?: { revision: number; time: string; reason: string } | null;
  in_sync?: boolean;
  fields?: Record<string, { time: string; origin: string; confirmed: boolean }>;
}

export interface FieldRow {
  /** `<node>.<type>[.<key>]`, percent-encoded as in the documents. */
  field: string;
  /** undefined: nothing is desired; null: that the point is deleted. */
  desired: unknown;
  /** undefined: there is no such value. */
  config: unknown;
  reported: unknown;
  difference: Difference | null;
  confirmed: boolean;
  origin: string;
  time: string;
  dtype: string;
}

export interface Shadow {
  /** Of `desired`: what an edit is based on; 0 where there is none. */
  revision: number;
  rows: FieldRow[];
  meta: Meta;
  desired: Record<string, unknown>;
}

/** Return the newest of the revisions as an object; an empty one where it is none. */
export function newest(revisions: readonly Revision[] | undefined): Record<string, unknown> {
  const body = revisions?.at(-1)?.body;
  if (!body) return {};
  try {
    const found: unknown = JSON.parse(body);
    return typeof found === "object" && found !== null && !Array.isArray(found)
      ? (found as Record<string, unknown>)
      : {};
  } catch {
    return {};
  }
}

/** Return a shadow, its fields by name. */
export function shadowOf(documents: Documents): Shadow {
  const written = newest(documents.desired);
  const desired: Record<string, unknown> = {};
  const dtypes: Record<string, string> = {};
  for (const [name, value] of Object.entries(written)) {
    const [field, dtype] = split(name);
    desired[field] = value;
    if (dtype) dtypes[field] = dtype;
  }
  const config = newest(documents.config);
  const reported = newest(documents.reported);
  const meta = newest(documents.meta) as Meta;
  const [now, there] = [fieldsOf(config), fieldsOf(reported)];
  const told = (config["dtypes"] ?? {}) as Record<string, string>;
  const names = new Set([...Object.keys(desired), ...Object.keys(now), ...Object.keys(there)]);
  const rows = [...names].sort().map((field) => ({
    field,
    desired: desired[field],
    config: now[field],
    reported: there[field],
    difference: meta.delta?.[field] ?? null,
    confirmed: meta.fields?.[field]?.confirmed ?? false,
    origin: meta.fields?.[field]?.origin ?? "",
    time: meta.fields?.[field]?.time ?? "",
    dtype: dtypes[field] ?? told[field] ?? "",
  }));
  return { revision: documents.desired?.at(-1)?.number ?? 0, rows, meta, desired: written };
}

function fieldsOf(document: Record<string, unknown>): Record<string, unknown> {
  const fields = document["fields"];
  return typeof fields === "object" && fields !== null ? (fields as Record<string, unknown>) : {};
}

/** Return documents with a revision that came live; one that is known, or older, changes nothing. */
export function withRevision(documents: Documents, part: Part, revision: Revision): Documents {
  const there = documents[part] ?? [];
  if ((there.at(-1)?.number ?? 0) >= revision.number) return documents;
  return { ...documents, [part]: [...there, revision].slice(-5) };
}

/** Return field and dtype of a name in `desired`; the dtype is empty where none is named. */
export function split(name: string): [field: string, dtype: string] {
  const at = name.lastIndexOf(":");
  return at < 0 ? [name, ""] : [name.slice(0, at), name.slice(at + 1)];
}

export interface FieldParts {
  node: string;
  type: string;
  key: string;
}

/** Return the series of a field; null where the name is no field. */
export function partsOf(field: string): FieldParts | null {
  const parts = field.split(".");
  if (parts.length < 2 || parts.length > 3) return null;
  try {
    const [node, type, key] = parts.map((each) => decodeURIComponent(each));
    return node && type ? { node, type, key: key ?? "" } : null;
  } catch {
    return null;
  }
}

/** How a person types a value. */
export type Kind = "number" | "integer" | "text" | "truth" | "json";

/** Return how a value is edited. */
export function kindOf(value: unknown, dtype: string): Kind {
  if (dtype === "int64") return "integer";
  if (typeof value === "boolean") return "truth";
  if (typeof value === "number") return "number";
  if (typeof value === "string" && dtype !== "json") return "text";
  return value === undefined ? "number" : "json";
}

export interface Typed {
  value: unknown;
  dtype: string | null;
}

/** Return what a person typed, with the dtype that the question names. Throws Error, with a sentence for the person. */
export function typed(text: string, kind: Kind): Typed {
  const plain = text.trim();
  switch (kind) {
    case "number": {
      const value = Number(plain.replace(/^−/, "-"));
      if (plain === "" || !Number.isFinite(value)) throw new Error("This is no number.");
      return { value, dtype: "float64" };
    }
    case "integer": {
      const value = Number(plain.replace(/^−/, "-"));
      if (plain === "" || !Number.isSafeInteger(value)) throw new Error("This is no whole number.");
      return { value, dtype: "int64" };
    }
    case "truth":
      if (plain !== "true" && plain !== "false") throw new Error("Say true or false.");
      return { value: plain === "true", dtype: "json" };
    case "json":
      try {
        return { value: JSON.parse(plain) as unknown, dtype: "json" };
      } catch {
        throw new Error("This is no JSON.");
      }
    case "text":
      return { value: text, dtype: "text" };
  }
}

/** Return the sentence about a field's difference. */
export function differenceText(row: FieldRow): string {
  const found = row.difference;
  if (found === null) return "";
  if (found.why === "overridden")
    return `overridden by ${found.by ?? "somebody"}${found.at ? `, ${found.at.slice(0, 19).replace("T", " ")} UTC` : ""}`;
  if (found.why === "lost") return "lost: the hub's database was put back from an older copy";
  return found.why;
}
