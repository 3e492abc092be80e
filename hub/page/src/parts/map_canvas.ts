// The map itself, loaded when it is first needed.
import "./trusted";
import L from "leaflet";
import { feature } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import world from "world-atlas/countries-110m.json";
import { colour } from "../look/theme";
import { gridStep, gridText, roundLength } from "../logic/grid";
import type { Tiles } from "./map_tiles";

/** Above the outlines, which stay where an operator's map ends, and beneath the devices. */
const TILES_PANE = "tiles";

export interface Place {
  id: string;
  label: string;
  lat: number;
  lon: number;
  /** A ring is drawn open where a device is away. */
  tone: "good" | "warning" | "critical" | "away";
}

export interface Trail {
  id: string;
  /** Latitude and longitude, the oldest first; null where the line is broken. */
  points: readonly (readonly [number, number] | null)[];
}

const TONES: Record<Place["tone"], string> = {
  good: "state-complete",
  warning: "warning",
  critical: "critical",
  away: "text-quiet",
};

/** A length on the map, in metres and in pixels. */
export interface Scale {
  metres: number;
  pixels: number;
}

export class MapCanvas {
  private readonly map: L.Map;
  private readonly ground: L.Canvas;
  private readonly land: L.GeoJSON;
  private readonly grid = L.layerGroup();
  private readonly markers = new Map<string, { marker: L.CircleMarker; place: Place }>();
  private readonly lines = new Map<string, L.Polyline>();
  private selected: string | null = null;
  /** The person has moved the map: it stays where it is. */
  private touched = false;
  private ended = false;
  private fitted = 0;
  private readonly watch: ResizeObserver;
  private tiles: Tiles | null = null;
  private tilesLayer: L.GridLayer | null = null;

  constructor(
    element: HTMLElement,
    private readonly onSelect: (id: string) => void,
    private readonly onScale: (scale: Scale) => void,
  ) {
    this.map = L.map(element, {
      preferCanvas: true,
      // Leaflet's own controls write HTML, which the page's policy refuses: the part brings its own.
      attributionControl: false,
      zoomControl: false,
      worldCopyJump: true,
      minZoom: 1,
      maxZoom: 18,
      zoomSnap: 0.5,
      fadeAnimation: false,
    }).setView([20, 0], 1);
    // Beneath the devices, in a canvas of its own: that is drawn anew with every device that moves.
    this.map.createPane("ground").style.zIndex = "350";
    this.map.createPane(TILES_PANE).style.zIndex = "360";
    this.ground = L.canvas({ pane: "ground" });
    const topology = world as unknown as Topology<{ countries: GeometryCollection }>;
    this.land = L.geoJSON(feature(topology, topology.objects.countries), {
      interactive: false,
      pane: "ground",
      renderer: this.ground,
      style: () => this.landStyle(),
    } as L.GeoJSONOptions);
    this.land.addTo(this.map);
    this.grid.addTo(this.map);
    this.map.on("moveend zoomend resize", () => this.moved());
    this.map.on("mousedown touchstart keydown", () => (this.touched = true));
    element.addEventListener("wheel", () => (this.touched = true), { passive: true });
    this.moved();
    this.watch = new ResizeObserver(() => this.map.invalidateSize({ animate: false }));
    this.watch.observe(element);
  }

  /** Show places and trails; what is no longer among them goes. */
  show(places: readonly Place[], trails: readonly Trail[], selected: string | null): void {
    const moved = selected !== this.selected;
    this.selected = selected;
    const left = new Set(this.markers.keys());
    for (const place of places) {
      left.delete(place.id);
      this.put(place);
    }
    for (const id of left) {
      this.markers.get(id)?.marker.remove();
      this.markers.delete(id);
    }
    this.draw(trails);
    const at = selected === null ? undefined : this.markers.get(selected);
    if (moved && at !== undefined) this.map.panTo(at.marker.getLatLng(), { animate: false });
    else if (!this.touched && this.markers.size > this.fitted) this.fit();
  }

  /** Lay an operator's own map over the outlines; returns whom its data are from. Throws what is wrong with the file. */
  async lay(url: string): Promise<string> {
    const { openTiles } = await import("./map_tiles");
    this.tiles = await openTiles(url, TILES_PANE);
    this.layTiles();
    return this.tiles.source;
  }

  private layTiles(): void {
    this.tilesLayer?.remove();
    this.tilesLayer = this.ended ? null : (this.tiles?.layer(isDark(colour("surface"))).addTo(this.map) ?? null);
  }

  /** Draw everything in the colours of now. */
  repaint(): void {
    this.layTiles();
    this.land.setStyle(this.landStyle());
    for (const { marker, place } of this.markers.values()) marker.setStyle(this.markerStyle(place));
    for (const line of this.lines.values()) line.setStyle({ color: colour("series-1") });
    this.drawGrid();
  }

  zoom(by: number): void {
    this.touched = true;
    this.map.setZoom(this.map.getZoom() + by, { animate: false });
  }

  /** Have all places in view. */
  fit(): void {
    const places = [...this.markers.values()].map(({ place }) => L.latLng(place.lat, place.lon));
    this.fitted = places.length;
    if (places.length > 0)
      this.map.fitBounds(L.latLngBounds(places), { padding: [40, 40], maxZoom: 14, animate: false });
  }

  end(): void {
    this.ended = true;
    this.watch.disconnect();
    this.map.off();
    this.map.remove();
  }

  private moved(): void {
    this.drawGrid();
    const { x, y } = this.map.getSize();
    const [left, right] = [this.map.containerPointToLatLng([0, y / 2]), this.map.containerPointToLatLng([100, y / 2])];
    const each = left.distanceTo(right) / 100;
    const metres = roundLength(each * Math.min(120, x / 3));
    this.onScale({ metres, pixels: metres / each });
  }

  private put(place: Place): void {
    const known = this.markers.get(place.id);
    if (known === undefined) {
      const marker = L.circleMarker([place.lat, place.lon], { ...this.markerStyle(place), bubblingMouseEvents: false });
      marker.bindTooltip(() => text(this.markers.get(place.id)?.place.label ?? place.label), { direction: "top" });
      marker.on("click", () => this.onSelect(place.id));
      marker.addTo(this.map);
      this.markers.set(place.id, { marker, place });
      return;
    }
    const before = known.place;
    known.place = place;
    if (before.lat !== place.lat || before.lon !== place.lon) known.marker.setLatLng([place.lat, place.lon]);
    known.marker.setStyle(this.markerStyle(place));
    known.marker.setRadius(this.radius(place));
  }

  private draw(trails: readonly Trail[]): void {
    const left = new Set(this.lines.keys());
    for (const { id, points } of trails) {
      left.delete(id);
      const way: L.LatLng[][] = [[]];
      for (const point of points)
        if (point === null) way.push([]);
        else way[way.length - 1]?.push(L.latLng(point[0], point[1]));
      const known = this.lines.get(id);
      if (known !== undefined) known.setLatLngs(way);
      else {
        const line = L.polyline(way, { color: colour("series-1"), weight: 2, opacity: 0.75, interactive: false });
        this.lines.set(id, line.addTo(this.map).bringToBack());
      }
    }
    for (const id of left) {
      this.lines.get(id)?.remove();
      this.lines.delete(id);
    }
  }

  private radius(place: Place): number {
    return place.id === this.selected ? 9 : 6;
  }

  private markerStyle(place: Place): L.CircleMarkerOptions {
    const ink = colour(TONES[place.tone]);
    const chosen = place.id === this.selected;
    return {
      radius: this.radius(place),
      color: chosen ? colour("text") : place.tone === "away" ? ink : colour("surface"),
      weight: chosen ? 3 : 2,
      fillColor: ink,
      fillOpacity: place.tone === "away" ? 0.15 : 0.95,
    };
  }

  private landStyle(): L.PathOptions {
    return { color: colour("line-strong"), weight: 0.75, fillColor: colour("surface"), fillOpacity: 1 };
  }

  /** Draw parallels and meridians: where outlines are far away, they say where one is. */
  private drawGrid(): void {
    this.grid.clearLayers();
    const bounds = this.map.getBounds();
    const size = this.map.getSize();
    const step = gridStep((bounds.getEast() - bounds.getWest()) / Math.max(1, size.x / 110));
    const line = { renderer: this.ground, pane: "ground", color: colour("line"), weight: 1, interactive: false };
    const [south, north] = [Math.max(-85, bounds.getSouth()), Math.min(85, bounds.getNorth())];
    for (let lon = Math.ceil(bounds.getWest() / step) * step; lon <= bounds.getEast(); lon += step) {
      L.polyline([[south, lon], [north, lon]], line).addTo(this.grid);
      this.gridLabel(L.latLng(north, lon), gridText(lon, "E", "W", step), [-4, -2]);
    }
    for (let lat = Math.ceil(south / step) * step; lat <= north; lat += step) {
      L.polyline([[lat, bounds.getWest()], [lat, bounds.getEast()]], line).addTo(this.grid);
      // The meridians' labels stand at the top.
      if (this.map.latLngToContainerPoint([lat, 0]).y < 32) continue;
      this.gridLabel(L.latLng(lat, bounds.getEast()), gridText(lat, "N", "S", step), [62, 16]);
    }
  }

  private gridLabel(at: L.LatLng, label: string, anchor: [number, number]): void {
    const icon = L.divIcon({ html: text(label), className: "grid-label", iconSize: [60, 14], iconAnchor: anchor });
    L.marker(at, { icon, interactive: false, keyboard: false }).addTo(this.grid);
  }
}

function isDark(surface: string): boolean {
  const parts = (surface.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
  return parts.reduce((all, each) => all + each, 0) < 3 * 128;
}

/** Names are text wherever they come from: Leaflet takes strings for HTML. */
function text(content: string): HTMLElement {
  const element = document.createElement("span");
  element.textContent = content;
  return element;
}
