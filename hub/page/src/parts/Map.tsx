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
  /** An operator's own map, and why it can be none. */
  file?: { url: string; problem: string } | null;
  /** Pixels. */
  height?: number;
}

export function MapView({ label, places, trails = [], selected = null, onSelect, file = null, height = 360 }: MapProps) {
  const place = useRef<HTMLDivElement>(null);
  const [canvas, setCanvas] = useState<MapCanvas | null>(null);
  const [scale, setScale] = useState<Scale | null>(null);
  const [failed, setFailed] = useState<Failing | null>(null);
  const [tiles, setTiles] = useState({ source: "", problem: "" });
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
  const { url = "", problem = "" } = file ?? {};
  useEffect(() => {
    if (canvas === null || url === "") return;
    if (problem !== "") setTiles({ source: "", problem });
    else
      canvas.lay(url).then(
        (source) => setTiles({ source, problem: "" }),
        (error: unknown) => setTiles({ source: "", problem: failing(error).message }),
      );
  }, [canvas, url, problem]);

  return (
    <div class="map">
      {failed && <Failure error={failed} />}
      {canvas === null && !failed && <Loading what="the map" />}
      <div ref={place} class="map-place" data-way={trails.reduce((all, each) => all + each.points.length, 0)} role="application" aria-label={`${label}: ${places.length} positions`} style={{ height: `${height}px` }} />
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
      {tiles.problem && (
        <p class="notice small" role="alert">
          The hub's own map cannot be shown: {tiles.problem}. Outlines stand in for it.
        </p>
      )}
      <p class="map-foot small" aria-hidden="true">
        {scale && (
          <span class="scale" style={{ width: `${Math.round(scale.pixels)}px` }}>
            {lengthText(scale.metres)}
          </span>
        )}
        <span class="source">{tiles.source && `${tiles.source} · `}Outlines: Natural Earth</span>
      </p>
    </div>
  );
}
