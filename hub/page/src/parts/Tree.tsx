// A tree that opens and closes: arrow keys as in every tree (WAI-ARIA), one stop of the Tab key.
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { flat, type TreeNode } from "../logic/tree";

export interface TreeProps {
  label: string;
  roots: readonly TreeNode[];
  selected: string | null;
  onSelect: (id: string) => void;
  /** What stands behind a name. */
  aside?: (node: TreeNode) => ComponentChildren;
  /** Levels that are open at first. */
  openLevels?: number;
}

export function Tree({ label, roots, selected, onSelect, aside, openLevels = 3 }: TreeProps) {
  const [turned, setTurned] = useState<ReadonlySet<string>>(new Set());
  const isOpen = (place: string, level: number): boolean => level <= openLevels !== turned.has(place);
  const rows = flat(roots, isOpen);
  const chosen = rows.find((each) => each.node.id === selected) ?? rows[0];
  const [at, setAt] = useState<string | null>(null);
  const current = rows.find((each) => each.place === at) ?? chosen;
  const list = useRef<HTMLUListElement>(null);

  const turn = (place: string): void => {
    const next = new Set(turned);
    if (!next.delete(place)) next.add(place);
    setTurned(next);
  };
  const move = (to: number): void => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, to))];
    if (row === undefined) return;
    setAt(row.place);
    list.current?.querySelector<HTMLElement>(`[data-row="${rows.indexOf(row)}"]`)?.focus();
  };
  const onKey = (event: KeyboardEvent): void => {
    if (current === undefined) return;
    const here = rows.indexOf(current);
    const open = current.node.children.length > 0 && isOpen(current.place, current.level);
    switch (event.key) {
      case "ArrowDown":
        move(here + 1);
        break;
      case "ArrowUp":
        move(here - 1);
        break;
      case "Home":
        move(0);
        break;
      case "End":
        move(rows.length - 1);
        break;
      case "ArrowRight":
        if (open) move(here + 1);
        else if (current.node.children.length > 0) turn(current.place);
        break;
      case "ArrowLeft":
        if (open) turn(current.place);
        else move(rows.findIndex((each) => each.place === current.above));
        break;
      case "Enter":
      case " ":
        onSelect(current.node.id);
        break;
      default:
        return;
    }
    event.preventDefault();
  };

  return (
    <ul class="tree" role="tree" aria-label={label} ref={list} onKeyDown={onKey}>
      {rows.map((row, index) => {
        const parent = row.node.children.length > 0;
        const open = parent && isOpen(row.place, row.level);
        return (
          <li
            key={row.place}
            data-row={index}
            role="treeitem"
            aria-level={row.level}
            aria-expanded={parent ? open : undefined}
            aria-selected={row.node.id === selected}
            tabIndex={row === current ? 0 : -1}
            style={{ paddingLeft: `${(row.level - 1) * 1.25}rem` }}
            onClick={() => {
              setAt(row.place);
              onSelect(row.node.id);
            }}
          >
            <span
              class="twist"
              aria-hidden="true"
              onClick={(event) => {
                if (!parent) return;
                event.stopPropagation();
                turn(row.place);
              }}
            >
              {parent ? (open ? "▾" : "▸") : ""}
            </span>
            <span class="break">{row.node.name}</span>
            {aside && <span class="quiet small aside-text">{aside(row.node)}</span>}
          </li>
        );
      })}
    </ul>
  );
}
