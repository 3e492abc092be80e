// The frame around every tab: whose page it is, how agent, leaf server and link are.
import type { ComponentChildren } from "preact";
import { linkStory } from "../logic/vehicle";
import { At } from "../parts/Ago";
import { Hint } from "../parts/Hint";
import { ThemeSwitch } from "../parts/ThemeSwitch";
import { logOut } from "./ask";
import { format, place, TABS, type Tab } from "./place";
import { session, silentSince } from "./session";
import { lookFailed, status } from "./vehicle";

const NAMES: Record<Tab, string> = {
  now: "Now",
  values: "Values",
  commands: "Commands",
  events: "Events",
  hours: "Hours",
  test: "Test",
};

export function Frame({ children }: { children: ComponentChildren }) {
  const at = place.value.tab;
  return (
    <>
      <header class="top">
        <strong class="device break">{session.value?.device}</strong>
        <nav aria-label="Parts">
          {TABS.map((each) => (
            <a key={each} href={format({ ...place.value, tab: each })} aria-current={at === each ? "page" : undefined}>
              {NAMES[each]}
            </a>
          ))}
        </nav>
        <LinkState />
        <span class="who">
          <ThemeSwitch />
          <button type="button" onClick={() => void logOut()}>
            Leave
          </button>
        </span>
      </header>
      <main id="main">
        <h1 class="aside">{NAMES[at]}</h1>
        <Trouble />
        {children}
      </main>
    </>
  );
}

function LinkState() {
  const told = status.value;
  if (silentSince.value !== null)
    return (
      <span class="link-state down" role="status">
        agent silent
      </span>
    );
  if (told === null || lookFailed.value !== null)
    return (
      <span class="link-state" role="status">
        …
      </span>
    );
  const story = linkStory(told);
  const tone = story.tone === "good" ? "up" : story.tone === "info" || story.tone === "quiet" ? "" : "down";
  return (
    <span class={`link-state ${tone}`} role="status">
      {told.connected ? `link ${story.word}` : story.word}
    </span>
  );
}

/** What stands in the way of everything else on the page. */
function Trouble() {
  if (silentSince.value !== null)
    return (
      <div class="banner critical" role="alert">
        <p>
          <strong>The agent does not answer</strong> since <At ms={silentSince.value} />. What is shown is from before.
        </p>
        <Hint text="See whether it runs: systemctl status backhaul-agent" />
      </div>
    );
  if (lookFailed.value !== null)
    return (
      <div class="banner critical" role="alert">
        <p>
          <strong>The agent does not tell how the vehicle is:</strong> {lookFailed.value.message}. What is shown is from before.
        </p>
        <Hint text="See what it logs: journalctl -u backhaul-agent" />
      </div>
    );
  const told = status.value;
  if (told === null || told.connected) return null;
  return (
    <div class="banner critical" role="alert">
      <p>
        <strong>The leaf server is away:</strong> no program on this vehicle can publish now. What the ledger holds is safe.
      </p>
      <Hint text={linkStory(told).mend} />
    </div>
  );
}
