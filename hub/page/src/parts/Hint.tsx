const COMMAND = /((?:sudo )?(?:backhaul-(?:hub|agent|spark)(?: [^\s:;,()]+)*|systemctl(?: [^\s:;,()]+)+))/;

/** A hint, with the commands in it set apart. */
export function Hint({ text }: { text: string }) {
  const parts = text.split(COMMAND); // every second one is a command
  return <p class="small">{parts.map((each, at) => (at % 2 === 1 ? <code key={at}>{each}</code> : each))}</p>;
}
