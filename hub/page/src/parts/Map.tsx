// Where devices are and were: Leaflet on a canvas, over outlines that come with the page. No other host is asked.
import { useEffect, useRef, useState } from "preact/hooks";
import { colours } from "../look/theme";
import { lengthText } from "../logic/grid";
import type { MapCanvas, Place, Scale, Trail } from "./map_canvas";
import { Failure, failing, Loading, type Failing } from "./States";

export type { Place, Trail } from "./map_canvas";

export interface MapProps {
  label: string;
  places: readonly Place[];
  trails?: readonly Trail[];
  selected?: string | null;
  onSelect?: ((id: string) => void) | undefined;
  /** Pixels. */
  height?: number;
}

export function MapView({ label, places, trails = [], selected = null, onSelect, height = 360 }: MapProps) {
  const place = useRef<HTMLDivElement>(null);
  const [canvas, setCanvas] = useState<MapCanvas | null>(null);
  const [scale, setScale] = useState<Scale | null>(null);
  const [failed, setFailed] = useState<Failing | null>(null);
  const select = useRef(onSelect);
  select.current = onSelect;
  const shownColours = colours.value;

  useEffect(() => {
    let made: MapCanvas | null = null;
    let over = false;
    // Leaflet and the outlines are half of the page: they are loaded once a map is seen.
    import("./map_canvas").then(
      (module) => {
        if (over || place.current === null) return;
        made = new module.MapCanvas(place.current, (id) => select.current?.(id), setScale);
        setCanvas(made);
      },
      (error: unknown) => setFailed(failing(error)),
    );
    return () => {
      over = true;
      made?.end();
    };
  }, []);
  useEffect(() => canvas?.show(places, trails, selected), [canvas, places, trails, selected]);
  useEffect(() => canvas?.repaint(), [canvas, shownColours]);

  return (
    <div class="map">
      {failed && <Failure error={failed} />}
      {canvas === null && !failed && <Loading what="the map" />}
      <div ref={place} class="map-place" role="application" aria-label={`${label}: ${places.length} positions`} style={{ height: `${height}px` }} />
      {canvas !== null && (
        <div class="map-tools">
          <button type="button" aria-label="Nearer" title="Nearer" onClick={() => canvas.zoom(1)}>
            +
          </button>
          <button type="button" aria-label="Farther" title="Farther" onClick={() => canvas.zoom(-1)}>
            −
          </button>
          <button type="button" title="All positions" onClick={() => canvas.fit()}>
            All
          </button>
        </div>
      )}
      <p class="map-foot small" aria-hidden="true">
        {scale && (
          <span class="scale" style={{ width: `${Math.round(scale.pixels)}px` }}>
            {lengthText(scale.metres)}
          </span>
        )}
        <span class="source">Outlines: Natural Earth</span>
      </p>
    </div>
  );
}
