// Where the vehicles are, and the way they came: the last hour by their history, then as this page sees them.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask } from "../hub/ask";
import { link } from "../hub/connection";
import { mapFile } from "../hub/where";
import type { History } from "../logic/series";
import { partsOf } from "../logic/shadow";
import { MapView, type Place, type Trail } from "../parts/Map";
import { Panel } from "../parts/Panel";
import type { FleetRow } from "../state/fleet";
import { BUCKET_S, PAST_S, placesOf, Trails, wayOf, type PlaceOf } from "../state/places";
import { go } from "../state/route";

export function FleetMap({ rows, position }: { rows: readonly FleetRow[]; position: readonly string[] }) {
  const [lat = "", lon = ""] = position;
  const places = useMemo(() => placesOf(rows, lat, lon), [rows, lat, lon]);
  const ways = useTrails(places, lat, lon);
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

/** Return the trails of these places; their past comes in by and by, one device after the other. */
function useTrails(places: readonly PlaceOf[], lat: string, lon: string) {
  const trails = useRef(new Trails());
  const newest = useRef(places);
  newest.current = places;
  const [turn, setTurn] = useState(0);
  const up = link.value === "up";
  const devices = places.map((each) => each.id).join("\n");
  useEffect(() => {
    let over = false;
    const load = async (): Promise<void> => {
      for (let id; !over && (id = trails.current.next(newest.current)) !== null; ) {
        const way = await past(id, lat, lon);
        if (over) return;
        trails.current.before(id, way);
        setTurn((before) => before + 1);
      }
    };
    // Where nobody serves history, trails begin now.
    if (up) load().catch(() => undefined);
    return () => {
      over = true;
    };
  }, [devices, lat, lon, up]);
  return useMemo(() => trails.current.take(places), [places, turn]);
}

async function past(device: string, lat: string, lon: string) {
  const nowUs = Date.now() * 1000;
  const span = { from_us: nowUs - PAST_S * 1e6, to_us: nowUs, points_max: PAST_S / BUCKET_S };
  const both = [lat, lon].map((name) => ask<History>("history", { device, ...partsOf(name), ...span }));
  const [north, east] = await Promise.all(both);
  return north && east ? wayOf(north, east) : [];
}
