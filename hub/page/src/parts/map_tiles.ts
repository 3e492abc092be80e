// An operator's own map, out of one PMTiles file: pictures, or shapes by the layers of Protomaps. Loaded only where there is one.
import L from "leaflet";
import { leafletRasterLayer, PMTiles, TileType } from "pmtiles";
import { leafletLayer } from "protomaps-leaflet";

export interface Tiles {
  /** Return a layer in the colours of light or dark. */
  layer(dark: boolean): L.GridLayer;
  /** Whom its data are from, as text; empty: the file does not say. */
  source: string;
}

/** Open a file. Throws what is wrong with it. */
export async function openTiles(url: string, pane: string): Promise<Tiles> {
  const file = new PMTiles(url);
  const { tileType, minZoom, maxZoom, minLon, minLat, maxLon, maxLat } = await file.getHeader();
  const about = (await file.getMetadata()) as { attribution?: unknown };
  if (tileType === TileType.Unknown) throw new Error("it does not say of what kind its tiles are");
  const bounds = L.latLngBounds([minLat, minLon], [maxLat, maxLon]);
  // Beyond the deepest tiles they are shown enlarged.
  const options = { pane, bounds, minZoom, maxZoom: 18, noWrap: true, attribution: "" };
  return {
    source: plain(about.attribution),
    layer: (dark) =>
      (tileType === TileType.Mvt
        ? leafletLayer({ ...options, url: file, maxDataZoom: maxZoom, flavor: dark ? "dark" : "light", lang: "en" })
        : leafletRasterLayer(file, { ...options, maxNativeZoom: maxZoom })) as unknown as L.GridLayer,
  };
}

/** Return the text of an attribution, which files have as HTML. */
function plain(html: unknown): string {
  return typeof html === "string" ? html.replace(/<[^>]*>/g, "").slice(0, 200) : "";
}
