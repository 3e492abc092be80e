// One alert, whole: what is wrong, what to do, who cares for it, who was told.
import { useState } from "preact/hooks";
import { ask } from "../../hub/ask";
import { mayDo } from "../../hub/session";
import { sourceText, type Alert } from "../../logic/alerts";
import { Ago, At, now } from "../../parts/Ago";
import { Badge } from "../../parts/Badge";
import { Field, Form } from "../../parts/forms";
import { Panel } from "../../parts/Panel";
import { Failure } from "../../parts/States";
import { useAsked, useDoing } from "../../state/asked";
import { href } from "../../state/route";

interface Notice {
  channel: string;
  kind: string;
  made_ns: number;
  sent_ns: number | null;
}

export interface AlertDetailsProps {
  alert: Alert;
  onTake: (alert: Alert) => void;
  onSilence: () => void;
  onClose: () => void;
}

export function AlertDetails({ alert, onTake, onSilence, onClose }: AlertDetailsProps) {
  const [note, setNote] = useState("");
  const doing = useDoing();
  const told = useAsked<{ notices?: Notice[] }>("alerts", { id: alert.id, past: true });
  const notices = told.value?.notices ?? [];
  const may = mayDo("write") && alert.state === "open";
  const silent = alert.silent_until_ns ? alert.silent_until_ns / 1e6 : 0;
  return (
    <Panel
      title={<span class="break">{alert.name}</span>}
      class="alert-details"
      tools={
        <button type="button" class="plain" aria-label="Close the details" onClick={onClose}>
          ✕
        </button>
      }
    >
      <p>
        <Badge tone={alert.state === "past" ? "quiet" : alert.severity}>{alert.severity}</Badge>{" "}
        <span class="quiet small">{alert.state === "open" ? "open" : "over"}, by a {sourceText(alert.source)}</span>
      </p>
      <p class="break">{alert.text}</p>
      {alert.hint && <p class="break small quiet">{alert.hint}</p>}
      <dl class="pairs">
        <dt>Device</dt>
        <dd class="break">
          {alert.device ? <a href={href({ screen: "device", device: alert.device, filters: {} })}>{alert.device}</a> : "the hub itself"}
        </dd>
        {alert.about && (
          <>
            <dt>About</dt>
            <dd class="break">{alert.about}</dd>
          </>
        )}
        <dt>Since</dt>
        <dd>
          <At ms={alert.since_ns / 1e6} /> (<Ago ms={alert.since_ns / 1e6} />)
        </dd>
        {alert.ended_ns && (
          <>
            <dt>Over</dt>
            <dd>
              <At ms={alert.ended_ns / 1e6} />
              {alert.ended_why && <span class="quiet"> ({alert.ended_why})</span>}
            </dd>
          </>
        )}
        <dt>Acknowledged</dt>
        <dd class="break">
          {alert.acknowledged ? (
            <>
              by {alert.acknowledged.by}, <At ms={alert.acknowledged.time_ns / 1e6} />
              {alert.acknowledged.note && <q class="note">{alert.acknowledged.note}</q>}
            </>
          ) : (
            "by nobody"
          )}
        </dd>
        {silent > now.value && (
          <>
            <dt>Silenced</dt>
            <dd>
              until <At ms={silent} />
            </dd>
          </>
        )}
        {notices.length > 0 && (
          <>
            <dt>Told</dt>
            <dd>
              <ul>
                {notices.map((each) => (
                  <li key={`${each.channel} ${each.kind} ${each.made_ns}`} class="break">
                    {each.channel}: {each.kind}, {each.sent_ns ? <At ms={each.sent_ns / 1e6} /> : "waiting to be sent"}
                  </li>
                ))}
              </ul>
            </dd>
          </>
        )}
      </dl>
      {may && !alert.acknowledged && (
        <Form class="form" onSend={() => void doing.run(async () => onTake(await ask<Alert>("acknowledge", { id: alert.id, note })))}>
          <Field label="Note" hint="kept with the alert">
            {(tied) => <input {...tied} value={note} maxLength={500} onInput={(event) => setNote(event.currentTarget.value)} />}
          </Field>
          <div class="buttons">
            <button type="button" onClick={onSilence}>
              Silence …
            </button>
            <button type="submit" class="main" disabled={doing.busy}>
              Acknowledge
            </button>
          </div>
        </Form>
      )}
      {may && alert.acknowledged && (
        <div class="row-buttons">
          <button type="button" onClick={onSilence}>
            Silence …
          </button>
        </div>
      )}
      {doing.error && <Failure error={doing.error} />}
    </Panel>
  );
}
