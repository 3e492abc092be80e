// The palette can be told apart: contrast by WCAG 2.2, distances in OKLab as people with each colour vision see them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

type Rgb = [number, number, number];

const css = readFileSync("src/look/tokens.css", "utf8");
const tokens = new Map<string, [string, string]>();
for (const [, name, light, dark] of css.matchAll(/--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g))
  tokens.set(name ?? "", [light ?? "", dark ?? ""]);

function linear(name: string, scheme: number): Rgb {
  const hex = tokens.get(name)?.[scheme];
  assert.ok(hex, `no colour ${name}`);
  const part = (at: number): number => {
    const share = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  return [part(1), part(3), part(5)];
}

function contrast(one: string, other: string, scheme: number): number {
  const light = ([r, g, b]: Rgb): number => 0.2126 * r + 0.7152 * g + 0.0722 * b;
  const [a, b] = [light(linear(one, scheme)), light(linear(other, scheme))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

// Machado, Oliveira, Fernandes (2009), severity 1; rows for red, green, blue, in linear light.
const VISIONS: Record<string, number[][]> = {
  trichromat: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanope: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranope: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanope: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

const times = (rows: readonly number[][], by: readonly number[]): number[] =>
  rows.map((row) => row.reduce((sum, each, at) => sum + each * (by[at] ?? 0), 0));

function seen(name: string, scheme: number, vision: string): number[] {
  const rgb = times(VISIONS[vision] ?? [], linear(name, scheme)).map((each) => Math.max(0, Math.min(1, each)));
  const cones = times(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]],
    rgb,
  ).map(Math.cbrt);
  return times(
    [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099], [0.0259040371, 0.7827717662, -0.808675766]],
    cones,
  );
}

function nearestOf(names: readonly string[], scheme: number, vision: string): [number, string] {
  let best: [number, string] = [Infinity, ""];
  names.forEach((one, at) => {
    for (const other of names.slice(at + 1)) {
      const [a, b] = [seen(one, scheme, vision), seen(other, scheme, vision)];
      const apart = Math.hypot(...a.map((each, part) => each - (b[part] ?? 0)));
      if (apart < best[0]) best = [apart, `${one} and ${other}`];
    }
  });
  return best;
}

const SCHEMES = ["light", "dark"] as const;
const STATES = ["complete", "waiting", "explained", "imported", "silent"].map((each) => `state-${each}`);

test("texts stand 4.5:1 against what they lie on", () => {
  const pairs: [string, string][] = [
    ...["ground", "surface", "raised", "sunken"].flatMap((ground): [string, string][] => [["text", ground], ["text-quiet", ground]]),
    ...["surface", "ground", "accent-ground"].map((ground): [string, string] => ["accent", ground]),
    ["on-accent", "accent"],
    ...["critical", "warning", "info", "good"].flatMap((each): [string, string][] => [[each, "surface"], ["text", `${each}-ground`]]),
  ];
  SCHEMES.forEach((name, scheme) => {
    for (const [text, ground] of pairs) assert.ok(contrast(text, ground, scheme) >= 4.5, `${name}: ${text} on ${ground}: ${contrast(text, ground, scheme)}`);
  });
});

test("colours that mean something stand 3:1 against the surface", () => {
  const marks = [...STATES, "line-strong", "focus", ...[1, 2, 3, 4, 5, 6].map((each) => `series-${each}`)];
  SCHEMES.forEach((name, scheme) => {
    for (const mark of marks) assert.ok(contrast(mark, "surface", scheme) >= 3, `${name}: ${mark}: ${contrast(mark, "surface", scheme)}`);
  });
});

test("the states of hours are told apart by every colour vision", () => {
  SCHEMES.forEach((name, scheme) => {
    for (const vision of Object.keys(VISIONS)) {
      const [apart, which] = nearestOf(STATES, scheme, vision);
      assert.ok(apart >= 0.09, `${name}, ${vision}: ${which}: ${apart}`);
    }
  });
});

test("severities are told apart by every colour vision", () => {
  SCHEMES.forEach((name, scheme) => {
    for (const vision of Object.keys(VISIONS)) {
      const [apart, which] = nearestOf(["critical", "warning", "info"], scheme, vision);
      assert.ok(apart >= 0.12, `${name}, ${vision}: ${which}: ${apart}`);
    }
  });
});
