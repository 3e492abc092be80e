// Conditions, each once with what mends it, and the places where it is.
import type { ComponentChildren } from "preact";
import { grouped, type ShownCondition } from "../state/health";
import { Ago } from "./Ago";
import { Badge, type Tone } from "./Badge";
import { Hint } from "./Hint";

const TONES: Record<string, Tone> = { error: "critical", warning: "warning", info: "info" };
const PLACES_MAX = 20;

export interface ConditionsProps {
  of: readonly ShownCondition[];
  /** How far the clock that they are stamped by is ahead of the browser's, in milliseconds. */
  aheadMs?: number;
  /** Names the device of a place, where there are several. */
  device?: (device: string) => ComponentChildren;
}

export function Conditions({ of, aheadMs = 0, device }: ConditionsProps) {
  return (
    <ul class="conditions">
      {grouped(of).map(({ first, all }) => (
        <li key={first.code}>
          <p>
            <Badge tone={TONES[first.severity] ?? "quiet"}>{first.severity}</Badge> <strong>{first.title}</strong>{" "}
            <code>{first.code}</code>
          </p>
          <Hint text={first.hint} />
          <ul class="condition-places small">
            {all.slice(0, PLACES_MAX).map((each, at) => (
              <li key={at}>
                {each.device && device?.(each.device)} {each.about}{" "}
                <span class="quiet">
                  {each.detail && `${each.detail}, `}since <Ago ms={each.since_ns / 1e6 - aheadMs} />
                </span>
              </li>
            ))}
            {all.length > PLACES_MAX && <li class="quiet">and {all.length - PLACES_MAX} more</li>}
          </ul>
        </li>
      ))}
    </ul>
  );
}
