// Commands as people follow them: states, and the deadline that counts down (docs/commands.md). Pure.
import { durationText } from "./text";

export interface Command {
  device: string;
  id: string;
  name: string;
  state: "queued" | "sent" | "accepted" | "done" | "failed" | "expired" | "interrupted";
  params: unknown;
  who: string;
  deadline_ns: number;
  queued_ns?: number;
  sent_ns?: number;
  accepted_ns?: number;
  ended_ns?: number;
  result?: unknown;
  error?: string;
  code?: string;
  by?: string;
}

export type Tone = "good" | "critical" | "warning" | "info" | "quiet";

const STATES: Record<Command["state"], [word: string, tone: Tone, means: string]> = {
  queued: ["queued", "info", "the hub has recorded it"],
  sent: ["sent", "info", "the vehicle reads it when its link is up"],
  accepted: ["running", "info", "the vehicle has started it"],
  done: ["done", "good", "the vehicle has done it"],
  failed: ["failed", "critical", "it was refused, or its handler reports failure"],
  expired: ["expired", "warning", "it was not started before its deadline"],
  interrupted: ["in doubt", "warning", "it may or may not have happened: nobody can know"],
};

export const STATE_ORDER: readonly Command["state"][] = ["queued", "sent", "accepted"];

/** Return the word of a state, its tone, and what it means. */
export function stateOf(command: Command): { word: string; tone: Tone; means: string } {
  const [word, tone, means] = STATES[command.state] ?? [command.state, "quiet", ""];
  return { word, tone, means };
}

/** Tell whether nothing more is to be expected, but for a later word of the vehicle. */
export function isOver(command: Command): boolean {
  return !STATE_ORDER.includes(command.state);
}

/** Return what the deadline means now; empty once the command is over. */
export function deadlineText(command: Command, nowMs: number): string {
  if (isOver(command)) return "";
  const left = command.deadline_ns / 1e6 - nowMs;
  if (command.state === "accepted") return "started in time; waiting for its end";
  if (left <= 0) return `deadline passed ${durationText(-left / 1000)} ago; waiting for the vehicle's word`;
  return `starts within ${durationText(Math.ceil(left / 1000))}, or not at all`;
}

/** Return how much of the time to the deadline is left, from 1 to 0. */
export function shareLeft(command: Command, nowMs: number): number {
  const from = (command.queued_ns ?? command.deadline_ns) / 1e6;
  const whole = command.deadline_ns / 1e6 - from;
  if (whole <= 0) return 0;
  return Math.min(1, Math.max(0, (command.deadline_ns / 1e6 - nowMs) / whole));
}

/** Return commands with one that came live, the newest first; a repeat takes the place of the former. */
export function withCommand(commands: readonly Command[], one: Command): Command[] {
  const before = commands.find((each) => each.id === one.id && each.device === one.device);
  if (before !== undefined && isOver(before) && !isOver(one)) return [...commands];
  const others = commands.filter((each) => each !== before);
  return [one, ...others].sort((a, b) => (b.queued_ns ?? 0) - (a.queued_ns ?? 0));
}

/** Return the parameters that a person typed: empty is null. Throws SyntaxError. */
export function paramsOf(text: string): unknown {
  return text.trim() === "" ? null : (JSON.parse(text) as unknown);
}
