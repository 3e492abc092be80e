// How old something is, kept up without anybody asking again.
import { signal } from "@preact/signals";
import { ageText, timeText } from "../logic/text";

/** The browser's clock in milliseconds, once a second; while the page is hidden it stands still. */
export const now = signal(Date.now());

const tick = (): void => {
  if (typeof document === "undefined" || !document.hidden) now.value = Date.now();
};
if (typeof document !== "undefined") {
  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", tick);
}

/** An age; the exact time stands in its title, and for machines in `datetime`. */
export function Ago({ ms }: { ms: number }) {
  return (
    <time dateTime={new Date(ms).toISOString()} title={timeText(ms)} class="number">
      {ageText(now.value - ms)}
    </time>
  );
}

/** A time in the browser's zone. */
export function At({ ms }: { ms: number }) {
  return (
    <time dateTime={new Date(ms).toISOString()} title={new Date(ms).toISOString()} class="number">
      {timeText(ms)}
    </time>
  );
}
