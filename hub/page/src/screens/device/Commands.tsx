// Commands to a device: sent with parameters, followed state by state, their deadlines counting down.
import { useState } from "preact/hooks";
import { ask } from "../../hub/ask";
import { mayDo } from "../../hub/session";
import { encodeToken } from "../../hub/subjects";
import {
  deadlineText,
  isOver,
  paramsOf,
  shareLeft,
  stateOf,
  withCommand,
  type Command,
} from "../../logic/commands";
import { valueText } from "../../logic/text";
import { Ago, At, now } from "../../parts/Ago";
import { Badge } from "../../parts/Badge";
import { Field, Form } from "../../parts/forms";
import { Panel } from "../../parts/Panel";
import { Awaited, Empty, Failure } from "../../parts/States";
import { useAsked, useDoing, useHeard } from "../../state/asked";
import { route } from "../../state/route";

const NAME = /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}$/;
const DEADLINE_S = 60;

export function Commands({ device }: { device: string }) {
  const asked = useAsked<{ commands: Command[] }>("commands", { device, limit: 100 });
  const take = (command: Command): void =>
    asked.change((answer) => ({ ...answer, commands: withCommand(answer.commands, command) }));
  useHeard([`${encodeToken(device)}.$.command.*`], (_, payload) => take(payload as Command));
  const commands = (asked.value?.commands ?? []).reduce<Command[]>(withCommand, []);
  const names = [...new Set(commands.map((each) => each.name))].sort();
  return (
    <div class="stack">
      {mayDo("command") && <SendPanel device={device} names={names} onSent={take} />}
      <Panel title="Commands" tools={<span class="quiet small">the newest 100</span>}>
        <Awaited of={asked} what="commands" />
        {asked.value !== null && commands.length === 0 && <Empty>Nobody has sent this device a command.</Empty>}
        <ol class="commands" aria-live="polite">
          {commands.map((each) => (
            <CommandRow key={each.id} command={each} />
          ))}
        </ol>
      </Panel>
    </div>
  );
}

interface SendProps {
  device: string;
  names: readonly string[];
  onSent: (command: Command) => void;
}

function SendPanel({ device, names, onSent }: SendProps) {
  const asked = route.value.filters;
  const [name, setName] = useState(asked["command"] ?? "");
  const [params, setParams] = useState(asked["params"] ?? "");
  const [deadline, setDeadline] = useState(String(DEADLINE_S));
  const [wrong, setWrong] = useState<{ name?: string; params?: string; deadline?: string }>({});
  const doing = useDoing();
  const send = async (): Promise<void> => {
    const seconds = Number(deadline);
    const found: typeof wrong = {};
    if (!NAME.test(name)) found.name = "A name is words of letters, digits, - and _, joined by dots.";
    if (!(seconds > 0)) found.deadline = "Seconds, more than 0.";
    let value: unknown = null;
    try {
      value = paramsOf(params);
    } catch {
      found.params = "This is no JSON.";
    }
    setWrong(found);
    if (Object.keys(found).length > 0) return;
    await doing.run(async () => {
      onSent(await ask<Command>("command", { device, name, params: value, deadline_s: seconds }));
    });
  };
  return (
    <Panel title="Send a command">
      <Form class="form send" onSend={() => void send()}>
        <Field label="Command" error={wrong.name} hint="as in door.unlock">
          {(tied) => (
            <>
              <input {...tied} value={name} list="command-names" autoComplete="off" onInput={(event) => setName(event.currentTarget.value)} />
              <datalist id="command-names">
                {names.map((each) => (
                  <option key={each} value={each} />
                ))}
              </datalist>
            </>
          )}
        </Field>
        <Field label="Parameters" error={wrong.params} hint='JSON, as in {"door": 2}; or nothing'>
          {(tied) => (
            <input {...tied} class="fixed" value={params} autoComplete="off" onInput={(event) => setParams(event.currentTarget.value)} />
          )}
        </Field>
        <Field label="Deadline in seconds" error={wrong.deadline} hint="the vehicle starts nothing later">
          {(tied) => (
            <input {...tied} value={deadline} inputMode="decimal" onInput={(event) => setDeadline(event.currentTarget.value)} />
          )}
        </Field>
        <div class="buttons">
          <button type="submit" class="main" disabled={doing.busy}>
            {doing.busy ? "Sending …" : "Send"}
          </button>
        </div>
      </Form>
      {doing.error && <Failure error={doing.error} />}
    </Panel>
  );
}

function CommandRow({ command }: { command: Command }) {
  const { word, tone, means } = stateOf(command);
  const over = isOver(command);
  const left = over ? "" : deadlineText(command, now.value);
  const times = (["queued", "sent", "accepted", "ended"] as const).flatMap((step) => {
    const ns = command[`${step}_ns`];
    return ns ? [{ step: step === "ended" ? word : step === "accepted" ? "started" : step, ms: ns / 1e6 }] : [];
  });
  return (
    <li class="command" data-command={command.id} data-state={command.state}>
      <div class="command-head">
        <strong class="break">{command.name}</strong>
        {command.params !== null && <code class="break">{valueText(command.params)}</code>}
        <Badge tone={tone} title={means}>
          {word}
        </Badge>
        <span class="quiet small">
          {command.who ? `by ${command.who}, ` : ""}
          {command.queued_ns ? (
            <>
              <Ago ms={command.queued_ns / 1e6} /> ago
            </>
          ) : null}
        </span>
      </div>
      {!over && (
        <p class="small countdown">
          {command.state !== "accepted" && (
            <progress max={1} value={shareLeft(command, now.value)} aria-label="Time left to the deadline" />
          )}
          <span class="number">{left}</span>
        </p>
      )}
      {over && (command.error || command.code) && (
        <p class="small break">
          {command.error ?? means}
          {command.code && <span class="quiet"> ({command.code}{command.by ? `, says the ${command.by}` : ""})</span>}
        </p>
      )}
      {over && !command.error && tone !== "good" && <p class="small quiet">{means}</p>}
      {command.result !== undefined && command.result !== null && (
        <p class="small break">
          Result: <code>{valueText(command.result)}</code>
        </p>
      )}
      <p class="steps small quiet">
        {times.map(({ step, ms }) => (
          <span key={step}>
            {step} <At ms={ms} />
          </span>
        ))}
      </p>
    </li>
  );
}
