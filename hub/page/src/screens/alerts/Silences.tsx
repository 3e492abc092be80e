// The silences that hold, each with a way to end it.
import { ask } from "../../hub/ask";
import { mayDo } from "../../hub/session";
import type { Silence } from "../../logic/alerts";
import { durationText } from "../../logic/text";
import { At, now } from "../../parts/Ago";
import { Panel } from "../../parts/Panel";
import { Empty, Failure } from "../../parts/States";
import { useDoing } from "../../state/asked";

export function Silences({ silences, onChange }: { silences: readonly Silence[]; onChange: () => void }) {
  const doing = useDoing();
  const held = silences.filter((each) => each.holds && each.until_ns / 1e6 > now.value);
  return (
    <Panel title="Silences" class="silences" tools={<span class="quiet small">{held.length}</span>}>
      {doing.error && <Failure error={doing.error} />}
      {held.length === 0 && <Empty>No silence holds: people are told of every alert that a route names.</Empty>}
      <ul class="cards">
        {held.map((each) => (
          <li key={each.id} class="card" data-silence={each.id}>
            <h3 class="break">
              {each.name || "All alerts"} of {each.group}
            </h3>
            <p class="small">
              until <At ms={each.until_ns / 1e6} />, {durationText(each.until_ns / 1e9 - now.value / 1000)} more
            </p>
            <p class="small quiet break">
              by {each.who}
              {each.why && `: ${each.why}`}
            </p>
            {mayDo("write") && (
              <div class="row-buttons">
                <button
                  type="button"
                  disabled={doing.busy}
                  onClick={() => void doing.run(() => ask("silence", { end: each.id })).then((done) => done && onChange())}
                >
                  End it now
                </button>
              </div>
            )}
          </li>
        ))}
      </ul>
    </Panel>
  );
}
