// A named figure, with a word on it.
import type { ComponentChildren } from "preact";

export function Fact({ name, value, children }: { name: string; value: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <strong class="number">{value}</strong>
        <span class="small quiet">{children}</span>
      </dd>
    </div>
  );
}
