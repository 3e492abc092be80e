// The answer of the service `health`, and what the screen System makes of it. Pure.

export interface ShownCondition {
  code: string;
  severity: string;
  title: string;
  hint: string;
  device: string;
  about: string;
  detail: string;
  since_ns: number;
}

export interface Stream {
  stream: string;
  messages: number;
  bytes: number;
  bytes_max: number;
  last_seq: number;
  consumers: number;
  leader: string;
  replicas: { name: string; current: boolean; lag: number }[];
}

export interface Health {
  time_ns: number;
  looked_ns: number;
  devices: number;
  connected: number;
  conditions: ShownCondition[];
  conditions_not_shown: number;
  control: { version: string; since_ns: number };
  jetstream: boolean;
  streams: Stream[];
  shards: { stream: string; last_seq: number; read_seq: number; behind: number; quarantined: number }[];
  consumers: { stream: string; consumer: string; pending: number; ack_pending: number }[];
  consumers_not_shown: number;
  /** As the server of history sees them beside the tables; nothing where none answers. */
  jobs: {
    looked_ns: number;
    jobs: JobStand[];
    tables: { table: string; written_ns: number }[];
  };
  sources: { lanes: number; lagging: number; lag_messages: number };
}

export interface JobStand {
  job: string;
  /** Messages of the hub, or of the job `rollup` ingests; null: not known. */
  behind: number | null;
  /** For how long it has been behind without moving, in seconds. */
  still_s: number;
}

/** Return how a job stands, in words. */
export function standText({ job, behind }: JobStand): string {
  if (behind === null) return "not known";
  if (behind === 0) return "has all";
  const [one, several] = job === "rollup" ? ["ingest", "ingests"] : ["message", "messages"];
  return `${behind.toLocaleString("en")} ${behind === 1 ? one : several}`;
}

/** Return conditions by their code, in the order in which the worst of each came: what mends them is the same. */
export function grouped(conditions: readonly ShownCondition[]): { first: ShownCondition; all: ShownCondition[] }[] {
  const found = new Map<string, { first: ShownCondition; all: ShownCondition[] }>();
  for (const each of conditions) {
    const known = found.get(each.code);
    if (known) known.all.push(each);
    else found.set(each.code, { first: each, all: [each] });
  }
  return [...found.values()];
}

/** Return which part of its room a stream has taken; null: it has no bound. */
export function part(stream: Stream): number | null {
  return stream.bytes_max > 0 ? stream.bytes / stream.bytes_max : null;
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** Return a size as people say it. */
export function bytesText(bytes: number): string {
  let size = bytes;
  let unit = 0;
  while (size >= 1000 && unit < UNITS.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${size >= 100 || unit === 0 ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
}
