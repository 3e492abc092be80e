// The newest values of one device: asked once, then kept up by what comes live for each of its nodes.
import { useEffect, useRef, useState } from "preact/hooks";
import { encodeToken } from "../hub/subjects";
import { withPoints, type Point, type Values } from "../logic/values";
import { useAsked, useHeard, type Asked } from "./asked";

/** With more nodes than this the whole group is listened to: a subscription each would cost more. */
const NODES_MAX = 200;
const ASK_AGAIN_MS = 15_000;

export interface LiveValues {
  values: Values;
  asked: Asked<{ points: Point[] }>;
}

/** Return the values of a device; `on` hears each point as it comes. */
export function useValues(device: string, on: (point: Point) => void): LiveValues {
  const asked = useAsked<{ points: Point[] }>("get", { device, telemetry: true });
  const [values, setValues] = useState<Values>(new Map());
  const waiting = useRef<Point[]>([]);
  const frame = useRef(0);
  const flush = (): void => {
    frame.current = 0;
    const points = waiting.current.splice(0);
    if (points.length > 0) setValues((before) => withPoints(before, points));
  };
  const take = (point: Point): void => {
    if (point.device !== device) return;
    waiting.current.push(point);
    on(point);
    // However much comes, values are drawn once a frame.
    frame.current ||= requestAnimationFrame(flush);
  };
  useEffect(() => {
    asked.value?.points.forEach(take);
  }, [asked.value]);
  useEffect(() => {
    // A node that began to speak meanwhile is listened to as well.
    const timer = setInterval(asked.again, ASK_AGAIN_MS);
    return () => {
      clearInterval(timer);
      cancelAnimationFrame(frame.current);
    };
  }, []);
  const nodes = [...new Set([...values.values()].map((each) => each.node))].sort();
  const address = (node: string): string => encodeToken(node === device ? device : `${device}/${node}`);
  // Of a device without values no node is known that could be listened to.
  const tails = nodes.length === 0 || nodes.length > NODES_MAX ? ["*.*.*"] : nodes.map((each) => `${address(each)}.*.*`);
  useHeard(tails, (_, payload) => take(payload as Point));
  return { values, asked };
}
