// The tree as the service `tree` tells it, as nested nodes and as rows of a list. Pure.

export interface TreeNode {
  id: string;
  name: string;
  children: readonly TreeNode[];
}

/** What is used here of the answer of `tree`: addresses, a node of a device is `<device>/<node>`. */
export interface TreeAnswer {
  root: string;
  nodes: readonly { node: string; parents: readonly string[] }[];
}

/** Return what is below an address, itself first; a node with two parents stands below both. */
export function below(answer: TreeAnswer, address: string): TreeNode {
  const children = new Map<string, string[]>();
  for (const { node, parents } of answer.nodes)
    for (const parent of parents) children.set(parent, [...(children.get(parent) ?? []), node]);
  const build = (id: string, above: readonly string[]): TreeNode => ({
    id,
    name: id.slice(id.indexOf("/") + 1),
    children: (children.get(id) ?? [])
      .filter((each) => !above.includes(each))
      .sort((a, b) => a.localeCompare(b, "en", { numeric: true }))
      .map((each) => build(each, [...above, id])),
  });
  return build(address, []);
}

/** Return a device's tree, with nodes below it that are known by their readings alone. */
export function deviceTree(answer: TreeAnswer | null, device: string, nodes: Iterable<string>): TreeNode {
  const root = answer === null ? { id: device, name: device, children: [] } : below(answer, device);
  const known = new Set(flat([root], () => true).map((each) => each.node.id));
  const more = [...new Set(nodes)]
    .filter((each) => !known.has(`${device}/${each}`))
    .sort()
    .map((each) => ({ id: `${device}/${each}`, name: each, children: [] }));
  return { ...root, children: [...root.children, ...more] };
}

export interface TreeRow {
  node: TreeNode;
  level: number;
  /** The way to it from the root: a node may stand in several places. */
  place: string;
  above: string | null;
}

/** Return the rows that are seen, each level of a closed node left out. */
export function flat(
  roots: readonly TreeNode[],
  isOpen: (place: string, level: number) => boolean,
  level = 1,
  above: string | null = null,
): TreeRow[] {
  return roots.flatMap((node) => {
    const place = above === null ? node.id : `${above}\n${node.id}`;
    const row = { node, level, place, above };
    return isOpen(place, level) ? [row, ...flat(node.children, isOpen, level + 1, place)] : [row];
  });
}

/** Return the names of all nodes at and below one, without their device. */
export function namesBelow(node: TreeNode): string[] {
  return [node.id.slice(node.id.indexOf("/") + 1), ...node.children.flatMap(namesBelow)];
}
