// Parallels and meridians of a map. Pure.

/** Return the step between lines, in degrees: 1, 2 or 5 times a power of ten, at least `least`. */
export function gridStep(least: number): number {
  if (least >= 20) return 30;
  const power = 10 ** Math.floor(Math.log10(Math.max(1e-4, least)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least) ?? power * 10;
}

/** Return a degree as a label. */
export function gridText(degrees: number, plus: string, minus: string, step: number): string {
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const turned = ((((degrees + 180) % 360) + 360) % 360) - 180;
  const size = Math.abs(turned);
  return size < step / 2 ? "0°" : `${size.toFixed(digits)}° ${turned > 0 ? plus : minus}`;
}

/** Return the largest length of 1, 2 or 5 times a power of ten that is not above one, in metres. */
export function roundLength(most: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, most)));
  return [5, 2, 1].map((each) => each * power).find((each) => each <= most) ?? 1;
}

/** Return a length as text. */
export function lengthText(metres: number): string {
  return metres >= 1000 ? `${metres / 1000} km` : `${metres} m`;
}
