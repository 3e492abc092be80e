// A part of a screen with a heading, and what can be done there.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

export interface PanelProps {
  title: ComponentChildren;
  /** Beside the heading: counts, switches, buttons. */
  tools?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}

export function Panel({ title, tools, children, class: also = "" }: PanelProps) {
  const id = useId();
  return (
    <section class={`panel ${also}`} aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {tools && <div class="tools">{tools}</div>}
      </header>
      {children}
    </section>
  );
}
