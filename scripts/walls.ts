/**
 * The import rules between the folders of the packages.
 *
 * A room is a folder with one assumption: `sandboxd/` a reachable daemon, `host/` this machine, `backends/local`
 * bubblewrap. A room imports only itself and the rooms of its row. Type imports count, because a type in the wrong room
 * is a dependency, too. There are no cycles between rooms, whatever the table allows.
 */

export interface SourceFile {
  /** Relative to the repository, with slashes. */
  readonly path: string;
  readonly text: string;
}

interface Import {
  readonly from: string;
  readonly to: string;
}

const FLEET = "packages/fleet/src/";

/** Folders that contain rooms instead of being one. */
const HALLS = ["backends", "compat", "host", "lifecycle"];

/** Files at the top of the fleet that any room may import: types, and the paths of this package's files and peers. */
const EVERYWHERE = ["fleet.ts", "optional-peer.ts", "package-files.ts"];

/** `x/*` is every room of the hall `x`, and its own files. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  world: [],
  untrusted: ["world"],
  backend: ["world"],
  store: ["backend", "world"],
  config: ["backend", "backends", "store", "world"],
  environments: ["backend", "host/*", "world"],
  observe: ["backend", "store", "world"],
  sandboxd: ["backend", "untrusted", "world"],
  "host/*": ["backend", "host/*", "world"],
  "compat/aio": ["backend", "untrusted", "world"],
  "compat/deerflow": ["backend", "config", "world"],
  "backends/memory": ["backend", "world"],
  "backends/remote": ["backend", "compat/aio", "host/*", "untrusted", "world"],
  "backends/local": ["backend", "host/*", "observe", "sandboxd", "untrusted", "world"],
  "backends/docker": ["backend", "host/*", "observe", "sandboxd", "compat/aio", "untrusted", "world"],
  "backends/kubernetes": ["backend", "host/*", "observe", "sandboxd", "untrusted", "world"],
  backends: ["backend", "backends/*", "world"],
  "lifecycle/*": ["backend", "config", "lifecycle/*", "observe", "store", "world"],
  inspect: ["backend", "config", "lifecycle/*", "observe", "store", "world"],
  testing: ["backend", "store", "world"],
  mcp: ["world"],
  channels: ["world"],
  gateway: ["backend", "config", "host/*", "inspect", "mcp", "observe", "untrusted", "world"],
};
/** The composition root and the command line assemble rooms: they may import all but what is above them. */
const MAY_NOT_IMPORT: Readonly<Record<string, readonly string[]>> = {
  "": ["cli", "gateway", "mcp", "channels", "testing"],
  cli: ["lifecycle/*", "testing", "channels"],
};
/** Packages of this repository that a package may import, beside itself. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  contract: [],
  sandboxd: ["contract"],
  client: ["contract"],
  fleet: ["contract", "sandboxd", "client"],
  dashboard: ["client"],
};

/** Every forbidden import, and every cycle of rooms, one line each. */
export function wallProblems(files: readonly SourceFile[]): string[] {
  const imports = files.flatMap(importsOf);
  return [...packageProblems(files), ...imports.flatMap(roomProblem), ...cycleProblems(imports)];
}

function roomProblem({ from, to }: Import): string[] {
  const [room, other] = [roomOf(from), roomOf(to)];
  if (room === other || EVERYWHERE.includes(to)) return [];
  const forbidden = MAY_NOT_IMPORT[room];
  if (forbidden !== undefined)
    return forbidden.some((row) => isRow(row, other)) ? [line({ from, to }, room, other)] : [];
  const allowed = MAY_IMPORT[room] ?? MAY_IMPORT[`${room.split("/")[0]}/*`];
  if (allowed === undefined) return [`${FLEET}${from}: the room ${room}/ has no row in scripts/walls.ts`];
  return allowed.some((row) => isRow(row, other)) ? [] : [line({ from, to }, room, other)];
}

function line({ from, to }: Import, room: string, other: string): string {
  return `${FLEET}${from} imports ${to}: ${room === "" ? "the top" : `${room}/`} may not import ${other === "" ? "the top" : `${other}/`}`;
}

function isRow(row: string, room: string): boolean {
  if (!row.endsWith("/*")) return row === room;
  const hall = row.slice(0, -2);
  return room === hall || room.startsWith(`${hall}/`);
}

/** `""` for files at the top. */
function roomOf(path: string): string {
  const folders = path.split("/").slice(0, -1);
  const [first = "", second] = folders;
  return HALLS.includes(first) && second !== undefined ? `${first}/${second}` : first;
}

function cycleProblems(imports: readonly Import[]): string[] {
  const edges = new Map<string, Map<string, Import>>();
  for (const one of imports) {
    const [room, other] = [nodeOf(one.from), nodeOf(one.to)];
    if (room === other) continue;
    const others = edges.get(room) ?? new Map<string, Import>();
    edges.set(room, others.set(other, others.get(other) ?? one));
  }
  const problems: string[] = [];
  const done = new Set<string>();
  const visit = (node: string, way: readonly string[]): void => {
    const at = way.indexOf(node);
    if (at >= 0) {
      const cycle = [...way.slice(at), node];
      const steps = cycle.slice(1).map((next, index) => edges.get(cycle[index] ?? "")?.get(next));
      const named = steps.map((step) => (step === undefined ? "" : `${step.from} imports ${step.to}`));
      problems.push(`a cycle of rooms: ${cycle.join(" -> ")} (${named.join("; ")})`);
      return;
    }
    if (done.has(node)) return;
    for (const next of edges.get(node)?.keys() ?? []) visit(next, [...way, node]);
    done.add(node);
  };
  for (const node of edges.keys()) visit(node, []);
  return problems;
}

/** Each file at the top is its own room: one of them importing another is no cycle. */
function nodeOf(path: string): string {
  return roomOf(path) || path;
}

function importsOf({ path, text }: SourceFile): Import[] {
  if (!path.startsWith(FLEET)) return [];
  const from = path.slice(FLEET.length);
  return specifiersIn(text)
    .filter((specifier) => specifier.startsWith("."))
    .map((specifier) => ({ from, to: resolved(from, specifier) }));
}

function* packageProblems(files: readonly SourceFile[]): Generator<string> {
  for (const { path, text } of files) {
    const [, name] = /^packages\/([^/]+)\/src\//.exec(path) ?? [];
    if (name === undefined) continue;
    for (const specifier of specifiersIn(text)) {
      const other =
        /^@sandlot\/([^/]+)/.exec(specifier)?.[1] ?? (/^sandlot(?:\/|$)/.test(specifier) ? "fleet" : undefined);
      if (other === undefined || other === name) continue;
      if (!(PACKAGES[name] ?? []).includes(other))
        yield `${path} imports ${specifier}: the package ${name} may not import ${other}`;
    }
  }
}

function specifiersIn(text: string): string[] {
  const found = text.matchAll(/^\s*(?:import|export)\b[^;"'=()]*?["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']/gm);
  return [...found].map(([, fixed, lazy]) => fixed ?? lazy ?? "");
}

function resolved(from: string, specifier: string): string {
  const parts = from.split("/").slice(0, -1);
  for (const part of specifier.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== ".") parts.push(part);
  }
  return parts.join("/");
}
