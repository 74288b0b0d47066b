/**
 * The tests of this repository as named steps, one after another, in suites:
 *
 *   npm test                   what a change has to pass; needs no engine, no browser and no network but the package registry
 *   npm run test:engines       container engines, stand-ins of other servers, browsers, packing, the lowest Node, more seeds
 *   npm run test:cluster       a Kubernetes cluster that is compiled here; not part of continuous integration
 *   npm run test:cluster-small the same in a small size
 *   npm run test:long          big sizes; not part of continuous integration
 *
 *   npm test -- --only vitest,lint     some steps
 *   npm test -- --changed [ref]        the static checks, and what the changes since a commit can affect (changed.ts)
 *
 * A step that fails does not stop the others; it fails the run. A step fails for making no progress in five minutes, and what it
 * was doing is named; how long it takes as a whole does not matter.
 *
 * The last line is `N passed, N failed`: every vitest test counts, and every other step counts as one. The lines above it name every
 * failure, each beginning with `FAILED`, so that the end of a long log is enough to see what failed. Above those stands a table of
 * where the time went: each step, and the slowest test files.
 * A skipped vitest test is listed with its reason; under CI=true it is a failure, because there everything a test
 * could need is meant to be present. The one exception is the cluster, which may be reported as `not built`.
 */
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { clusterStep, startBuild } from "../tests/cluster/step.mjs";
import { build } from "./build.mjs";
import { planChange, STEP_FOLDERS } from "./changed.ts";
import { changesSince, checkoutSources } from "./changed-files.ts";
import { durationTable } from "./duration-table.ts";
import { floorNode } from "./floor-node.mjs";
import { repositoryFiles } from "./repository-files.ts";
import { childEnvironment, ROOT, repositoryNode, withHeartbeat } from "./runtime.mjs";
import { runWatched, STALL_MS } from "./watched-run.mjs";

/** Every suite starts programs from `dist`, and may be the first to run in a checkout. */
const BUILD = { name: "build", run: () => outcome(build({ runPart: watched })) };

/** The tests that take a Kubernetes cluster. */
const CLUSTER = { name: "cluster", run: () => onCluster("full") };
/** The groups of the backend suite that nothing else covers, and some chaos. */
const SMALL_CLUSTER = { name: "cluster", run: () => onCluster("small") };

/** The chaos and the scale of a release. */
const LONG_CLUSTER = { name: "cluster-long", run: () => onCluster("long") };
const NOTHING = { passed: 0, failed: 0 };

/**
 * Under a minute on two idle processors. Each is found within the first hundred seeds. Named, so that a new mutant does not
 * put another one into their place.
 */
const MUTANTS_SAMPLE = [
  "--only",
  [
    ...["a-bind-does-not-settle", "beat-does-not-heal", "buried-parks-now", "create-without-marker"],
    ...["engine-limit-is-forgotten", "forgotten-hold-is-given-up", "home-goes-with-the-sandbox"],
    ...["leases-after-the-lifetime", "leases-are-never-due", "nobody-is-buried", "nobody-takes-over"],
    ...["put-back-unasked", "restore-is-forgotten", "rows-rewind-is-not-seen", "stop-ignores-holders"],
    ...["unmakes-only-what-is-known"],
  ].join(","),
  ...["--runs", "1500", "--unchanged", "60"],
];

/** Instances at work in the long runs on servers. */
const EIGHT = ["--processes", "8"];

/** In the order of running: quick steps that point at a cause come first. */
const SUITES = {
  test: [
    BUILD,
    { name: "typecheck", run: () => script("typecheck") },
    { name: "lint", run: () => script("lint") },
    { name: "knip", run: () => script("knip") },
    { name: "docs-are-current", run: () => script("docs:errors", "--check") },
    { name: "config-type-is-current", run: () => script("docs:config", "--check") },
    { name: "pins", run: () => script("check:pins") },
    { name: "repo", run: () => script("check:repo") },
    { name: "walls", run: () => script("check:walls") },
    { name: "vitest", run: () => vitest("vitest", repositoryNode(), "run", "--project", "test") },
    { name: "sim", run: () => script("sim", "--runs", "400") },
    { name: "crash", run: () => script("crash", "--cycles", "60") },
    { name: "chaos-local", run: () => script("chaos", "--backend", "local", "--quick") },
  ],
  engines: [
    BUILD,
    { name: "publint", run: () => script("check:publint") },
    { name: "pack", run: () => script("check:packed") },
    { name: "vitest-node-floor", run: vitestOnNodeFloor },
    { name: "vitest-engines", run: () => vitest("vitest-engines", repositoryNode(), "run", "--project", "engines") },
    { name: "sim-more", run: () => script("sim", "--runs", "3000") },
    // Some of the bugs that `test:long` plants, to check that planting and finding them still works.
    { name: "sim-mutants-sample", run: () => script("sim:mutants", ...MUTANTS_SAMPLE) },
    { name: "docs-site", run: () => script("docs:site") },
    { name: "chaos-docker", run: () => script("chaos", "--quick") },
    { name: "crash-postgres", run: () => script("crash", "--store", "postgres", "--cycles", "60") },
    { name: "crash-redis", run: () => script("crash", "--store", "redis", "--cycles", "60") },
    { name: "chaos-postgres", run: () => script("chaos", "--store", "postgres", "--runs", "8") },
    { name: "chaos-redis", run: () => script("chaos", "--store", "redis", "--runs", "8") },
  ],
  cluster: [BUILD, CLUSTER],
  "cluster-small": [BUILD, SMALL_CLUSTER],
  long: [
    BUILD,
    { name: "sim-long", run: () => script("sim", "--runs", "100000") },
    { name: "sim-mutants", run: () => script("sim:mutants", "--unchanged", "300") },
    { name: "crash-long", run: () => script("crash", "--cycles", "1000") },
    { name: "crash-postgres-long", run: () => script("crash", "--store", "postgres", ...EIGHT, "--cycles", "500") },
    { name: "crash-redis-long", run: () => script("crash", "--store", "redis", ...EIGHT, "--cycles", "500") },
    { name: "chaos-postgres-long", run: () => script("chaos", "--store", "postgres", "--runs", "200") },
    { name: "chaos-redis-long", run: () => script("chaos", "--store", "redis", "--runs", "200") },
    { name: "checkpoints-every-call", run: everyCallOfCheckpoints },
    { name: "checkpoints-model", run: () => script("checkpoints:model", "--runs", "5000") },
    { name: "checkpoints-million", run: () => script("checkpoints:million") },
    { name: "crash-self-check", run: () => script("crash", "--self-check") },
    { name: "fuzz", run: () => script("fuzz", "--requests", "20000", "--seconds", "7200") },
    { name: "load", run: () => script("load") },
    { name: "load-gateways-postgres", run: () => script("load", "--gateways", "2", "--store", "postgres") },
    { name: "load-gateways-redis", run: () => script("load", "--gateways", "2", "--store", "redis") },
    { name: "large-output", run: () => script("large-output") },
    { name: "soak-local", run: () => script("soak", "--cycles", "2000") },
    { name: "soak-docker", run: () => script("soak", "--backend", "docker", "--cycles", "200", "--together", "20") },
    { name: "chaos-local-long", run: () => script("chaos", "--backend", "local", "--runs", "200") },
    { name: "chaos-docker-long", run: () => script("chaos", "--runs", "200") },
    LONG_CLUSTER,
    { name: "aio-clients", run: () => script("aio-clients") },
    { name: "whole-suite-on-engines", run: wholeSuiteOnEngines },
  ],
};

/** The library's core; the engines and services around it are tested on one Node. */
const NODE_FLOOR_TESTS = [
  "packages/contract",
  // With a slash: a name without one also matches longer names.
  ..."backend/ config/ docs/ host/workspaces/ inspect/ lifecycle/ observe/ provider/ store/ backends/memory"
    .split(" ")
    .map((folder) => `packages/fleet/test/${folder}`),
];

const HEARTBEAT_MS = 30_000;
/** How many failures of a step the end of the log names, and how much of each message. */
const NAMED_FAILURES = 10;
const REASON_LENGTH = 300;
const CACHE = join(ROOT, ".cache");
/** Many tests start processes from source: Node reads cached compiled code. */
const COMPILED = { NODE_COMPILE_CACHE: join(CACHE, "compiled") };
const IN_CI = process.env.CI === "true";

let interrupted = false;
process.on("SIGINT", () => {
  interrupted = true;
});
process.on("SIGTERM", () => {
  interrupted = true;
});
process.exitCode = await main(process.argv.slice(2));

async function main([suite, ...args]) {
  const steps = chosenSteps(suite, args);
  if (steps === undefined) return 2;
  mkdirSync(CACHE, { recursive: true });
  if (steps.includes(SMALL_CLUSTER)) startBuild("small");
  if (steps.includes(CLUSTER)) startBuild("full");
  if (steps.includes(LONG_CLUSTER)) startBuild("long");
  const results = [];
  for (const step of steps) {
    if (interrupted) break;
    results.push(await runStep(step));
  }
  return report(results);
}

function chosenSteps(suite, args) {
  const steps = SUITES[suite];
  if (steps === undefined) {
    console.error(
      `usage: node scripts/test.mjs ${Object.keys(SUITES).join("|")} [--only <step>,<step>… | --changed [ref]]`,
    );
    return undefined;
  }
  const [option, list, ...rest] = args;
  if (option === undefined) return steps;
  if (option === "--changed" && suite === "test" && rest.length === 0) return changedSteps(steps, list);
  const names = steps.map(({ name }) => name);
  const wanted = option === "--only" ? (list ?? "").split(",") : [];
  const unknown = wanted.filter((name) => !names.includes(name));
  if (wanted.length > 0 && unknown.length === 0 && rest.length === 0)
    return steps.filter(({ name }) => wanted.includes(name));
  const command = suite === "test" ? "npm test" : `npm run test:${suite}`;
  console.error(`usage: ${command} -- --only <step>,<step>…   steps: ${names.join(", ")}`);
  if (suite === "test") console.error(`       ${command} -- --changed [ref]`);
  return undefined;
}

/** The steps that the changes since `ref` can affect; all of them when that is unknown. */
function changedSteps(steps, ref) {
  const changes = changesSince(ref);
  if ("problem" in changes) {
    // A name that git does not know is a mistake; a checkout without git is none.
    console.log(`--changed: ${changes.problem}${ref === undefined ? "; so everything runs" : ""}`);
    return ref === undefined ? steps : undefined;
  }
  console.log(`--changed: ${changes.files.length} files since ${changes.since}`);
  const plan = planChange(changes.files, checkoutSources());
  if (plan.kind === "everything") {
    console.log(`--changed: everything runs: ${plan.because}`);
    return steps;
  }
  for (const path of plan.engines) console.log(`--changed: ${path} is judged by npm run test:engines only`);
  const related = () => vitest("vitest", repositoryNode(), "related", "--run", "--project", "test", ...plan.related);
  const chosen = steps.flatMap((step) => {
    if (step.name === "vitest") return plan.related.length === 0 ? [] : [{ ...step, run: related }];
    return step.name in STEP_FOLDERS && !plan.steps.includes(step.name) ? [] : [step];
  });
  const left = steps.filter(({ name }) => !chosen.some((step) => step.name === name)).map(({ name }) => name);
  if (left.length > 0) console.log(`--changed: cannot be affected and does not run: ${left.join(", ")}`);
  return chosen;
}

async function runStep({ name, run: work }) {
  console.log(`\n=== ${name}`);
  const startedAt = Date.now();
  const tell = (seconds) => console.log(`=== ${name} is still running (${seconds} s)`);
  const {
    passed,
    failed,
    failures = [],
    slowest = [],
  } = await withHeartbeat(HEARTBEAT_MS, tell, work).catch((error) => {
    console.error(error);
    return { passed: 0, failed: 1, failures: [{ name: "error", reason: String(error) }] };
  });
  const seconds = (Date.now() - startedAt) / 1000;
  console.log(`=== ${name} ${failed === 0 ? "passed" : "FAILED"} in ${seconds.toFixed(1)} s`);
  return { name, passed, failed, failures, slowest, seconds };
}

function report(results) {
  const passed = results.reduce((sum, result) => sum + result.passed, 0);
  const failed = results.reduce((sum, result) => sum + result.failed, 0) + (interrupted ? 1 : 0);
  console.log("");
  for (const line of durationTable(results)) console.log(line);
  for (const { name, failures } of results) {
    for (const failure of failures.slice(0, NAMED_FAILURES)) {
      console.log(`FAILED in ${name}: ${failure.name}: ${oneLine(failure.reason)}`);
    }
    const more = failures.length - NAMED_FAILURES;
    if (more > 0) console.log(`FAILED in ${name}: ${more} more, see above`);
  }
  if (interrupted) console.log("interrupted; the remaining steps did not run");
  console.log(`${passed} passed, ${failed} failed`);
  return failed === 0 ? 0 : 1;
}

/** A message shortened for the list at the end; the step's own output has all of it. */
function oneLine(text) {
  const line = stripVTControlCharacters(text).replace(/\s+/g, " ").trim();
  return line.length <= REASON_LENGTH ? line : `${line.slice(0, REASON_LENGTH)}…`;
}

// --- kinds of steps

/** A step that succeeds or fails as a whole. */
async function outcome(exitCode) {
  return (await exitCode) === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };
}

/** Runs a command and reports what hung. Returns its exit code, never 0 then. */
async function watched(command, args, options = {}) {
  const { code, stalled } = await runWatched(command, args, options);
  if (stalled === null) return code;
  const minutes = STALL_MS / 60_000;
  console.log(`FAILED: no progress in ${minutes} minutes, so it was ended: ${[command, ...args].join(" ")}`);
  for (const line of stalled) console.log(`FAILED: it was busy with ${line}`);
  return code || 1;
}

/** A script of package.json, as `npm run` would run it but without npm's shell. */
async function script(name, ...extra) {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
  const commands = scripts[name].split(" && ").map((command) => command.split(" "));
  commands.at(-1).push(...extra);
  for (const [program, ...args] of commands) {
    console.log(`$ ${[program, ...args].join(" ")}`);
    const options = { env: childEnvironment(COMPILED), shell: process.platform === "win32" };
    if ((await watched(program, args, options)) !== 0) return { passed: 0, failed: 1 };
  }
  return { passed: 1, failed: 0 };
}

async function vitest(name, node, command, ...args) {
  const [summaryFile, progressFile] = [join(CACHE, `${name}.json`), join(CACHE, `${name}.progress`)];
  for (const file of [summaryFile, progressFile]) rmSync(file, { force: true });
  const entry = join(ROOT, "node_modules", "vitest", "vitest.mjs");
  const reporters = ["--reporter=default", "--reporter=./scripts/vitest-summary.ts"];
  const files = { SANDLOT_TEST_SUMMARY: summaryFile, SANDLOT_TEST_PROGRESS: progressFile };
  const colour = process.stdout.isTTY || process.env.FORCE_COLOR ? { FORCE_COLOR: "1" } : { NO_COLOR: "1" };
  const env = childEnvironment({ ...COMPILED, ...files, ...colour });
  const code = await watched(node, [entry, command, ...reporters, ...args], { env, progressFile });
  if (!existsSync(summaryFile)) return { passed: 0, failed: 1 };
  const { passed, failures, skipped, retried, slowest } = JSON.parse(readFileSync(summaryFile, "utf8"));
  for (const test of skipped) {
    if (IN_CI) failures.push({ name: test.name, reason: `skipped, which is a failure under CI=true: ${test.reason}` });
    else console.log(`skipped: ${test.name}: ${test.reason}`);
  }
  for (const test of retried) console.log(`passed at the second try only: ${test.name}: ${oneLine(test.reason)}`);
  // An exit code without a failed test is a failure that belongs to no test.
  if (failures.length === 0 && code !== 0) failures.push({ name: "vitest", reason: `exit code ${code}` });
  return { passed, failed: failures.length, failures, slowest };
}

function onCluster(size) {
  return clusterStep(size, async (environment) => {
    Object.assign(process.env, environment, { SANDLOT_TEST_CLUSTER_SIZE: size });
    const isLong = size === "long";
    const files = size === "small" ? ["packages/fleet/test/engines/kubernetes/suite.test.ts"] : [];
    const tests = isLong ? NOTHING : await vitest("cluster", repositoryNode(), "run", "--project", "cluster", ...files);
    const runs = isLong ? "200" : "8";
    const chaos = await script("chaos", "--backend", "kubernetes", "--runs", runs, "--whole-cluster");
    const scale = isLong ? await script("scale", "--pods", "5000") : NOTHING;
    const sum = (key) => tests[key] + chaos[key] + scale[key];
    return { ...tests, passed: sum("passed"), failed: sum("failed") };
  });
}

/** Every group of the backend suite on every engine, where `test:engines` runs the groups that an engine can change. */
function wholeSuiteOnEngines() {
  process.env.SANDLOT_TEST_WHOLE_SUITE = "1";
  return vitest("whole-suite-on-engines", repositoryNode(), "run", "--project", "engines");
}

/** The faults of `npm test`, at every file system call instead of some. */
function everyCallOfCheckpoints() {
  process.env.SANDLOT_EVERY_CALL = "1";
  const file = "packages/fleet/test/host/checkpoints/crash.test.ts";
  return vitest("checkpoints-every-call", repositoryNode(), "run", "--project", "test", file);
}

/** The packages' own tests on the lowest Node they promise to run on, fetched once from the package registry. */
async function vitestOnNodeFloor() {
  const node = await floorNode();
  if (node === undefined) {
    console.log(`${IN_CI ? "FAILED, because skipped" : "skipped"}: there is no packaged Node for this platform`);
    return { passed: 0, failed: IN_CI ? 1 : 0 };
  }
  // A folder that was moved would be left out without a word.
  const files = repositoryFiles();
  const missing = NODE_FLOOR_TESTS.filter((folder) => !files.some((path) => path.startsWith(folder)));
  if (missing.length > 0) throw new Error(`no tests are in ${missing.join(", ")}; correct NODE_FLOOR_TESTS`);
  return vitest("vitest-node-floor", node, "run", "--project", "test", ...NODE_FLOOR_TESTS);
}
