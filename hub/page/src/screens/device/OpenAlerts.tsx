// How many alerts of a device are open, as a link to them.
import { encodeToken } from "../../hub/subjects";
import { counts, withAlert, type Alert } from "../../logic/alerts";
import { Badge } from "../../parts/Badge";
import { useAsked, useHeard } from "../../state/asked";
import { href } from "../../state/route";

export function OpenAlerts({ device }: { device: string }) {
  const asked = useAsked<{ alerts: Alert[] }>("alerts", { device });
  useHeard([`${encodeToken(device)}.$.alert.*`], (_, payload) =>
    asked.change((answer) => ({ ...answer, alerts: withAlert(answer.alerts, payload as Alert) })),
  );
  const open = (asked.value?.alerts ?? []).filter((each) => each.state === "open");
  const { critical, warning } = counts(open);
  const tone = critical > 0 ? "critical" : warning > 0 ? "warning" : open.length > 0 ? "info" : "good";
  return (
    <a class="to-alerts" href={href({ screen: "alerts", device: null, filters: { device } })}>
      {asked.error ? (
        <Badge tone="quiet">alerts not known</Badge>
      ) : (
        <Badge tone={asked.value === null ? "quiet" : tone}>
          {asked.value === null ? "alerts …" : open.length === 0 ? "no open alerts" : `${open.length} open ${open.length === 1 ? "alert" : "alerts"}`}
        </Badge>
      )}
    </a>
  );
}
