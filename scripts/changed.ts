/**
 * What a change can affect: the steps of `npm test -- --changed`, and the test files among them.
 *
 * Invariants
 * - A change is never judged more quietly than a full run would judge it. Everything runs for a file that decides how tests
 *   run, for a file that no rule knows, and for one that reaches tests in another way than by an import.
 * - The static checks always run: they take a minute, and read every file.
 *
 * vitest knows which tests import a file (`vitest related`). It does not know what a test starts as a process, so tests that
 * start processes run after every change of a source.
 */

/** The checkout, or a made-up one. Paths have `/` and are relative to its root. */
export interface Sources {
  readonly paths: readonly string[];
  read(path: string): string;
}

export type ChangePlan =
  | { readonly kind: "everything"; readonly because: string }
  | {
      readonly kind: "some";
      /** Of those that are not static checks. */
      readonly steps: readonly string[];
      /** For `vitest related`: tests, and files whose tests it finds. None: vitest has nothing to run. */
      readonly related: readonly string[];
      /** Changed files that only `npm run test:engines` judges. */
      readonly engines: readonly string[];
    };

/** By the folder that a step runs: with everything that its files import, that is all that can change its outcome. */
export const STEP_FOLDERS: Readonly<Record<string, string>> = {
  sim: "tests/simulation/",
  crash: "tests/crash/",
  "chaos-local": "tests/chaos/",
};

const ENGINE_TESTS = /^packages\/(?:fleet\/test\/backends\/docker|[^/]+\/test\/engines)\//;
const SOURCE = /^packages\/(?:contract|client|fleet)\/src\/.*\.ts$/;
const TEST_CODE = /^(?:packages\/[^/]+\/test|tests)\/.*\.ts$/;
const DOCUMENT = /^(?:docs\/.*|[^/]+\.md|packages\/[^/]+\/README\.md)$/;
/** Typechecked and linted, and run by no step. */
const STATIC_ONLY = /^bench\/.*\.ts$/;

const STARTS_PROCESSES = /"node:(?:child_process|cluster|worker_threads)"|\bdist\b/;
const READS_DOCUMENTS = /\.md\b|\bdocs\b/;

export function planChange(changed: readonly string[], sources: Sources): ChangePlan {
  const graph = new ImportGraph(sources);
  const related = new Set<string>();
  const engines: string[] = [];
  for (const path of changed) {
    if (DOCUMENT.test(path)) for (const test of testsWith(READS_DOCUMENTS, graph)) related.add(test);
    else if (!sources.paths.includes(path)) return everything(path, "is gone, and so is what imported it");
    else if (ENGINE_TESTS.test(path)) engines.push(path);
    else if (TEST_CODE.test(path)) {
      related.add(path);
      // Not a test itself: a test may start it.
      if (!isTest(path)) for (const test of testsWith(STARTS_PROCESSES, graph)) related.add(test);
    } else if (SOURCE.test(path)) {
      if (graph.programs().has(path)) return everything(path, "is part of a program that sandboxes start");
      related.add(path);
      for (const test of testsWith(STARTS_PROCESSES, graph)) related.add(test);
    } else if (!STATIC_ONLY.test(path)) return everything(path, "may affect every test");
  }
  const steps = Object.entries(STEP_FOLDERS).flatMap(([step, folder]) => {
    const reached = graph.reached(sources.paths.filter((path) => path.startsWith(folder)));
    return changed.some((path) => reached.has(path)) ? [step] : [];
  });
  return { kind: "some", steps, related: [...related].sort(), engines };
}

function everything(path: string, because: string): ChangePlan {
  return { kind: "everything", because: `${path} ${because}` };
}

function isTest(path: string): boolean {
  return path.endsWith(".test.ts");
}

/** The tests of `npm test` that do this, in their own file or in test code that they import. */
function testsWith(pattern: RegExp, graph: ImportGraph): readonly string[] {
  const { paths, read } = graph.sources;
  const tests = paths.filter((path) => isTest(path) && TEST_CODE.test(path) && !ENGINE_TESTS.test(path));
  return tests.filter((test) =>
    [...graph.reached([test])].some((path) => TEST_CODE.test(path) && pattern.test(read(path))),
  );
}

/** Which files import which, by their text. A package counts as all of its source. */
class ImportGraph {
  readonly sources: Sources;
  readonly #imports = new Map<string, readonly string[]>();
  readonly #known: ReadonlySet<string>;
  #programs: ReadonlySet<string> | null = null;

  constructor(sources: Sources) {
    this.sources = sources;
    this.#known = new Set(sources.paths);
  }

  reached(entries: readonly string[]): ReadonlySet<string> {
    const reached = new Set(entries);
    for (const path of reached) for (const imported of this.#importsOf(path)) reached.add(imported);
    return reached;
  }

  /** What the fleet starts as processes of their own (`programFile`), with all that they import. */
  programs(): ReadonlySet<string> {
    this.#programs ??= this.reached(
      this.sources.paths.filter((path) => SOURCE.test(path)).flatMap((path) => this.#startedBy(path)),
    );
    return this.#programs;
  }

  #startedBy(path: string): readonly string[] {
    const named = this.sources.read(path).matchAll(/\bprogramFile\("([^"]+)"\)/g);
    return [...named].map(([, name]) => `packages/fleet/src/${name}.ts`).filter((file) => this.#known.has(file));
  }

  #importsOf(path: string): readonly string[] {
    let found = this.#imports.get(path);
    if (found === undefined) {
      found = /\.(?:ts|mjs)$/.test(path) && this.#known.has(path) ? this.#resolvedImports(path) : [];
      this.#imports.set(path, found);
    }
    return found;
  }

  #resolvedImports(path: string): readonly string[] {
    const specifiers = this.sources.read(path).matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)"([^"]+)"/g);
    return [...specifiers].flatMap(([, specifier = ""]) => {
      if (specifier.startsWith(".")) {
        const file = new URL(specifier, `file:///${path}`).pathname.slice(1);
        return this.#known.has(file) ? [file] : [];
      }
      const name = /^@sandlot\/([a-z]+)|^(sandlot)(?:\/|$)/.exec(specifier);
      if (name === null) return [];
      const folder = `packages/${name[1] ?? "fleet"}/src/`;
      return this.sources.paths.filter((file) => file.startsWith(folder));
    });
  }
}
