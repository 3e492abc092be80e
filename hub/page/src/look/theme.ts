// Light or dark: as the system says, or as the person chose; and colours for canvases, which know no variables.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "backhaul-theme";
const THEMES: readonly Theme[] = ["system", "light", "dark"];

function kept(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return THEMES.find((each) => each === found) ?? "system";
  } catch {
    return "system"; // a browser that keeps nothing
  }
}

export const theme = signal<Theme>("system");

/** Grows whenever colours change: a canvas that reads it draws again. */
export const colours = signal(0);

const found = new Map<string, string>();

/** Apply the kept theme, and each choice from now on. Call it once. */
export function startTheme(): void {
  theme.value = kept();
  effect(() => {
    const chosen = theme.value;
    if (chosen === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = chosen;
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      // then it holds until the page is closed
    }
    forget();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forget);
}

function forget(): void {
  found.clear();
  colours.value = colours.peek() + 1;
}

/** Return a token's colour, such as `state-waiting`, as a canvas takes it. */
export function colour(token: string): string {
  const known = found.get(token);
  if (known !== undefined) return known;
  const probe = document.createElement("span");
  probe.style.color = `var(--${token})`;
  probe.hidden = true;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  found.set(token, value);
  return value;
}

/** Return a colour, thinner: `share` of it, from 0 to 1. */
export function thin(value: string, share: number): string {
  const parts = /rgba?\(([\d.]+),\s*([\d.]+),\s*([\d.]+)/.exec(value);
  return parts ? `rgba(${parts[1]},${parts[2]},${parts[3]},${share})` : value;
}
