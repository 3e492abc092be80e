// A word with a sign and a tone: it can be read without its colour.
import type { ComponentChildren } from "preact";

export type Tone = "good" | "critical" | "warning" | "info" | "quiet";

const SIGNS: Record<Tone, string> = { good: "✓", critical: "▲", warning: "◆", info: "●", quiet: "○" };

export function Badge({ tone, children, title }: { tone: Tone; children: ComponentChildren; title?: string }) {
  return (
    <span class={`badge ${tone}`} title={title}>
      <span class="sign" aria-hidden="true">
        {SIGNS[tone]}
      </span>
      {children}
    </span>
  );
}
