// Leaflet asks on loading whether a browser knows SVG, by writing "<svg/>" as HTML. The page's policy refuses
// all HTML from texts; this lets that one text through and nothing else. To be imported before Leaflet.

interface TrustedTypes {
  createPolicy(name: string, rules: { createHTML: (text: string) => string | null }): unknown;
  defaultPolicy: unknown;
}

const types = (globalThis as { trustedTypes?: TrustedTypes }).trustedTypes;
if (types !== undefined && types.defaultPolicy === null)
  types.createPolicy("default", { createHTML: (text) => (text === "<svg/>" ? text : null) });
