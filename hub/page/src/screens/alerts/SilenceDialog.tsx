// Have nobody told of some alerts for a time.
import { useState } from "preact/hooks";
import { ask } from "../../hub/ask";
import { session } from "../../hub/session";
import { Dialog, Field, Form, Select } from "../../parts/forms";
import { Failure } from "../../parts/States";
import { useDoing } from "../../state/asked";

const TIMES: readonly { value: string; text: string }[] = [
  { value: "1800", text: "30 minutes" },
  { value: "7200", text: "2 hours" },
  { value: "28800", text: "8 hours" },
  { value: "86400", text: "1 day" },
  { value: "604800", text: "7 days" },
];

export interface SilenceDialogProps {
  /** Of which group or device, and of which alerts, it begins with; empty: of all the person sees. */
  group: string;
  name: string;
  onClose: () => void;
  onDone: () => void;
}

export function SilenceDialog({ group: begin, name: called, onClose, onDone }: SilenceDialogProps) {
  const [group, setGroup] = useState(begin || (session.peek()?.group ?? ""));
  const [name, setName] = useState(called);
  const [time, setTime] = useState("7200");
  const [why, setWhy] = useState("");
  const doing = useDoing();
  return (
    <Dialog title="Silence alerts" onClose={onClose}>
      <Form
        class="form"
        onSend={() =>
          void doing
            .run(() => ask("silence", { group: group.trim(), for_s: Number(time), name: name.trim(), why }))
            .then((done) => done && onDone())
        }
      >
        <Field label="Group or device">
          {(tied) => <input {...tied} value={group} required onInput={(event) => setGroup(event.currentTarget.value)} autoFocus />}
        </Field>
        <Field label="Alerts named" hint="* stands for anything; empty: all">
          {(tied) => <input {...tied} value={name} maxLength={64} onInput={(event) => setName(event.currentTarget.value)} />}
        </Field>
        <Select label="For" value={time} choices={TIMES} onChange={setTime} />
        <Field label="Why">
          {(tied) => <input {...tied} value={why} maxLength={500} onInput={(event) => setWhy(event.currentTarget.value)} />}
        </Field>
        <p class="small quiet">The alerts stay in the list. Whoever would be told of them is told once the silence ends, if they are still open.</p>
        {doing.error && <Failure error={doing.error} />}
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="main" disabled={doing.busy}>
            Silence
          </button>
        </div>
      </Form>
    </Dialog>
  );
}
