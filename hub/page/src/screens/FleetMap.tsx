// Where the vehicles are, and the way they came while this page was open.
import { useMemo, useRef } from "preact/hooks";
import { mapFile } from "../hub/where";
import { MapView, type Place, type Trail } from "../parts/Map";
import { Panel } from "../parts/Panel";
import type { FleetRow } from "../state/fleet";
import { placesOf, Trails } from "../state/places";
import { go } from "../state/route";

export function FleetMap({ rows, position }: { rows: readonly FleetRow[]; position: readonly string[] }) {
  const trails = useRef(new Trails());
  const [lat = "", lon = ""] = position;
  const places = useMemo(() => placesOf(rows, lat, lon), [rows, lat, lon]);
  const ways = useMemo(() => trails.current.take(places), [places]);
  if (places.length === 0) return null;
  return (
    <Panel
      title="Map"
      tools={
        <span class="quiet small">
          {places.length.toLocaleString("en")} of {rows.length.toLocaleString("en")} by {lat}, {lon}
        </span>
      }
    >
      <MapView
        label="Positions"
        places={places as Place[]}
        trails={ways as Trail[]}
        onSelect={(device) => go({ screen: "device", device })}
        file={mapFile.value}
        height={480}
      />
    </Panel>
  );
}
