// The link of a device, what it owes, and its conditions: as the service `fleet` tells it, every few seconds.
import { useEffect } from "preact/hooks";
import { Ago } from "../../parts/Ago";
import { Badge, type Tone } from "../../parts/Badge";
import { useAsked } from "../../state/asked";
import { rowOf, type ToldRow } from "../../state/fleet";

const ASK_AGAIN_MS = 5000;
const TONES: Record<string, Tone> = { error: "critical", warning: "warning" };

export function Standing({ device }: { device: string }) {
  const asked = useAsked<{ devices: ToldRow[] }>("fleet", { device });
  useEffect(() => {
    const timer = setInterval(asked.again, ASK_AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  const told = asked.value?.devices[0];
  if (told === undefined) return asked.error ? <Badge tone="quiet">{asked.error.message}</Badge> : null;
  const row = rowOf(told, []);
  return (
    <p class="standing">
      {row.up === null ? (
        <Badge tone="quiet">link not known</Badge>
      ) : row.up ? (
        <Badge tone="good">link up</Badge>
      ) : (
        <Badge tone="warning">
          <span>link down {row.sinceMs !== null && <Ago ms={row.sinceMs} />}</span>
        </Badge>
      )}
      {row.revoked && <Badge tone="critical">key revoked</Badge>}
      {row.backlog > 0 && <Badge tone="info">{row.backlog} messages to come</Badge>}
      {row.conditions.map((each) => (
        <Badge key={`${each.code} ${each.about}`} tone={TONES[each.severity] ?? "info"} title={each.about}>
          {each.code}
        </Badge>
      ))}
      {row.more > 0 && <Badge tone="warning">{row.more} more</Badge>}
    </p>
  );
}
