// What a technician is told of a vehicle: its link and why it is down, what waits, hours and why they are not complete. Pure.
import type { ShownCondition } from "../state/health";
import { durationText, numberText } from "./text";

/** What is used here of the answer of `agent.status`. */
export interface VehicleStatus {
  device: string;
  uptime_s: number;
  memory_bytes_max: number;
  connected: boolean;
  last_error: string;
  conditions: ShownCondition[];
  link: {
    up: boolean | null;
    mode: string;
    phase: string;
    next_visit_s: number | null;
    last_failure: string;
    rate_kbit_s: number | null;
    shared?: boolean;
  };
  leaf: { redial: { down_s: number | null; not_dialing: string } };
  ledger: { bytes: number; bytes_max: number; staged_points: number; evicted_messages: number; disk_full: boolean };
  lanes: Record<string, LaneStatus>;
  clock: { quality: string; held_messages: number };
  counters: { points_kept: number; refused: Record<string, number> };
}

export interface LaneStatus {
  state: string;
  last_seq: number;
  ready_seq: number;
  appended: number;
  watermark: number;
  waits_for_hub: boolean;
}

export interface WaitingSum {
  messages: number;
  bytes: number;
  held_messages: number;
  oldest_ns: number | null;
}

export interface WaitingAnswer {
  lanes: ({ lane: string; epoch: number } & WaitingSum)[];
  hours: ({ from_ns: number } & WaitingSum)[];
  hours_more: number;
  given_up: GivenUp[];
}

export interface GivenUp {
  lane: string;
  epoch: number;
  lo: number;
  hi: number;
  reason: string;
  after_ns: number | null;
  before_ns: number | null;
}

export type Tone = "good" | "critical" | "warning" | "info" | "quiet";

export interface LinkStory {
  word: string;
  tone: Tone;
  /** Why it is so, and what follows. */
  why: string;
  /** What to do, with a command; empty: nothing. */
  mend: string;
}

const RESTART_LEAF = "start it again: sudo systemctl restart backhaul-leaf";

/** Return how the link is, why, and what mends it. */
export function linkStory(status: VehicleStatus): LinkStory {
  const { link, leaf } = status;
  if (!status.connected)
    return {
      word: "leaf server away",
      tone: "critical",
      why: `The agent has no connection to the leaf server on this vehicle${status.last_error ? `: ${status.last_error}` : "."}`,
      mend: `See whether it runs (systemctl status backhaul-leaf), and ${RESTART_LEAF}`,
    };
  if (link.up === null)
    return {
      word: "not known",
      tone: "quiet",
      why: "The leaf server has not said yet whether it has its link to the hub.",
      mend: "",
    };
  if (link.up) {
    const rate = link.rate_kbit_s === null ? "its rate is not measured yet" : `it carries ${numberText(link.rate_kbit_s)} kbit/s`;
    return { word: "up", tone: "good", why: `The leaf server has its link to the hub; ${rate}.`, mend: "" };
  }
  const since = leaf.redial.down_s === null ? "" : ` for ${durationText(leaf.redial.down_s)}`;
  if (link.mode !== "always" && link.phase === "idle") {
    const next =
      link.next_visit_s === null ? "when something urgent waits" : `in ${durationText(Math.max(0, link.next_visit_s))}`;
    const failed = link.last_failure ? ` The last visit failed: ${link.last_failure}.` : "";
    return {
      word: "down between visits",
      tone: link.last_failure ? "warning" : "info",
      why: `The link is ${link.mode}: the agent takes it up ${next}.${failed}`,
      mend: link.last_failure ? "To see what the hub says to this vehicle's login: sudo backhaul-agent status" : "",
    };
  }
  if (leaf.redial.not_dialing)
    return { word: "down", tone: "critical", why: `The leaf server does not dial the hub: ${leaf.redial.not_dialing}`, mend: `To have it dial, ${RESTART_LEAF}` };
  if (link.shared)
    return {
      word: "down",
      tone: "critical",
      why: "Another machine uses this vehicle's identity, and is online now.",
      mend: "Enrol one of the two anew: sudo backhaul-agent enrol",
    };
  const failed = link.last_failure ? ` ${link.last_failure}.` : "";
  return {
    word: "down",
    tone: "warning",
    why: `The leaf server dials the hub, and has had no link${since}.${failed} Readings wait in the ledger meanwhile; nothing is lost.`,
    mend: "See that the modem or cable has a network. To try the login and be told why it fails: sudo backhaul-agent status",
  };
}

/** Return why a lane's messages still wait; empty where none do. */
export function laneWhy(lane: LaneStatus, status: VehicleStatus): string {
  if (lane.watermark >= lane.last_seq) return "";
  if (!status.connected) return "the leaf server is away";
  if (lane.ready_seq < lane.last_seq && lane.ready_seq <= lane.watermark) return "stamps wait for the time, which the hub tells";
  if (status.link.up === false) return "the link is down";
  if (lane.waits_for_hub) return "the hub has not said yet where it goes on";
  if (lane.appended < lane.ready_seq) return "on its way to the leaf server's stream";
  return "sent, and not confirmed by the hub yet";
}

/** Return why an hour is not complete at the hub. `nowNs` is by the vehicle's clock. */
export function hourWhy(hour: WaitingSum & { from_ns: number }, status: VehicleStatus, nowNs: number): string {
  const words: string[] = [];
  if (hour.held_messages > 0) words.push("stamps wait for the time, which the hub tells");
  if (!status.connected) words.push("the leaf server is away");
  else if (status.link.up === false) words.push("the link is down");
  else if (hour.held_messages < hour.messages) words.push("on its way: the hub has not confirmed it yet");
  if (nowNs >= hour.from_ns && nowNs < hour.from_ns + 3.6e12) words.push("this hour goes on");
  return words.join("; ");
}

/** Return in words what was given up, and where in time it lies. */
export function givenUpText(each: GivenUp, text: (ms: number) => string): string {
  const count = each.hi - each.lo + 1;
  const what = `${numberText(count)} ${count === 1 ? "message" : "messages"} of ${each.lane} (${each.lo === each.hi ? each.lo : `${each.lo}–${each.hi}`})`;
  const when = [
    each.after_ns === null ? "" : `after ${text(each.after_ns / 1e6)}`,
    each.before_ns === null ? "" : `before ${text(each.before_ns / 1e6)}`,
  ].filter(Boolean);
  return `${what}${when.length ? `, ${when.join(" and ")}` : ""}: ${each.reason}`;
}

export interface Total {
  messages: number;
  bytes: number;
  oldestNs: number | null;
}

/** Return what waits in all lanes together. */
export function total(answer: WaitingAnswer | null): Total | null {
  if (answer === null) return null;
  const oldest = answer.lanes.flatMap((each) => (each.oldest_ns === null ? [] : [each.oldest_ns]));
  return {
    messages: answer.lanes.reduce((sum, each) => sum + each.messages, 0),
    bytes: answer.lanes.reduce((sum, each) => sum + each.bytes, 0),
    oldestNs: oldest.length ? Math.min(...oldest) : null,
  };
}

/** The value that a person typed, as it is published: a number where it reads as one. Throws where it is empty. */
export function testValue(text: string): number | string {
  const trimmed = text.trim();
  if (trimmed === "") throw new Error("A value is needed.");
  const number = Number(trimmed);
  return Number.isFinite(number) ? number : trimmed;
}

/** Return the code in an address's hash, as `backhaul-agent page` prints it; null where there is none. */
export function codeIn(hash: string): string | null {
  return /^#[2-9A-HJ-NP-Z]{4}-?[2-9A-HJ-NP-Z]{4}$/i.test(hash) ? hash.slice(1) : null;
}
