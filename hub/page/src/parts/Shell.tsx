// The frame around every screen: where one is, who one is, how the link is.
import type { ComponentChildren } from "preact";
import { link } from "../hub/connection";
import { logOut } from "../hub/login";
import { session } from "../hub/session";
import { ThemeSwitch } from "./ThemeSwitch";
import { href, route, type Screen } from "../state/route";

const NAMES: Record<Exclude<Screen, "device">, string> = { fleet: "Fleet", alerts: "Alerts", system: "System" };

export function Shell({ children }: { children: ComponentChildren }) {
  const at = route.value.screen;
  const who = session.value;
  return (
    <>
      <header class="top">
        <nav aria-label="Screens">
          {Object.entries(NAMES)
            .filter(([screen]) => screen !== "system" || who?.group === "fleet")
            .map(([screen, name]) => (
            <a
              key={screen}
              href={href({ screen: screen as Screen, device: null })}
              aria-current={at === screen ? "page" : undefined}
            >
              {name}
            </a>
          ))}
        </nav>
        <span class={`link-state ${link.value}`} role="status">
          {{ off: "logged out", up: "live", down: "no connection", refused: "logged out by the hub" }[link.value]}
        </span>
        {who && (
          <span class="who">
            <ThemeSwitch />
            {who.name} · {who.group} <button onClick={() => void logOut()}>Log out</button>
          </span>
        )}
      </header>
      <main id="main">{children}</main>
    </>
  );
}
