/**
 * A vitest reporter that writes what `npm test` needs: counts, every failed test with its first message, every skipped test with
 * the reason it gave (`context.skip("reason")`), every test that passed only when it was tried again, and the slowest files.
 * The JSON reporter of vitest leaves the skipped and the retried out.
 *
 * While tests run, their names stand in a file, one in a line: it changes with every test that begins or ends.
 */
import { writeFileSync } from "node:fs";
import type { Reporter, TestCase, TestModule } from "vitest/node";

export interface TestSummary {
  readonly passed: number;
  readonly failed: number;
  readonly failures: readonly NamedReason[];
  readonly skipped: readonly NamedReason[];
  /** Passed at a retry: an unreliable test, or an intermittent fault. */
  readonly retried: readonly NamedReason[];
  /** Files, the slowest first. */
  readonly slowest: readonly FileDuration[];
}

export interface FileDuration {
  readonly path: string;
  readonly seconds: number;
}

/** Enough to find where most of the time goes. */
const SLOWEST_FILES = 15;

interface NamedReason {
  readonly name: string;
  readonly reason: string;
}

interface WithMessage {
  readonly message?: string;
}

export default class VitestSummary implements Reporter {
  readonly #running = new Set<string>();

  onTestModuleQueued(module: TestModule): void {
    this.#move("add", module.relativeModuleId);
  }

  onTestModuleEnd(module: TestModule): void {
    this.#move("delete", module.relativeModuleId);
  }

  onTestCaseReady(test: TestCase): void {
    this.#move("add", nameOf(test));
  }

  onTestCaseResult(test: TestCase): void {
    this.#move("delete", nameOf(test));
  }

  #move(change: "add" | "delete", name: string): void {
    this.#running[change](name);
    const file = process.env.SANDLOT_TEST_PROGRESS;
    if (file !== undefined) writeFileSync(file, [...this.#running].join("\n"));
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const file = process.env.SANDLOT_TEST_SUMMARY;
    if (file !== undefined)
      writeFileSync(file, JSON.stringify(summarize(modules, unhandledErrors as readonly WithMessage[])));
  }
}

function nameOf(test: TestCase): string {
  return `${test.module.relativeModuleId} > ${test.fullName}`;
}

/** The first error: later ones are from the retry, or follow from it. */
function named(name: string, errors: readonly WithMessage[]): NamedReason {
  return { name, reason: errors[0]?.message ?? "no message" };
}

function summarize(modules: readonly TestModule[], unhandledErrors: readonly WithMessage[]): TestSummary {
  let passed = 0;
  const failures: NamedReason[] = [];
  const skipped: NamedReason[] = [];
  const retried: NamedReason[] = [];
  for (const error of unhandledErrors) failures.push(named("outside of every test", [error]));
  for (const module of modules) {
    // A file that could not be loaded and a suite whose hook failed have no failed test.
    for (const error of module.errors()) failures.push(named(module.relativeModuleId, [error]));
    for (const suite of module.children.allSuites()) {
      for (const error of suite.errors())
        failures.push(named(`${module.relativeModuleId} > ${suite.fullName}`, [error]));
    }
    for (const test of module.children.allTests()) {
      const result = test.result();
      const name = nameOf(test);
      if (result.state === "passed" && test.diagnostic()?.flaky === true)
        retried.push(named(name, result.errors ?? []));
      if (result.state === "passed") passed++;
      else if (result.state === "failed") failures.push(named(name, result.errors));
      else {
        const note = result.state === "skipped" ? result.note : undefined;
        skipped.push({ name, reason: note ?? "no reason given" });
      }
    }
  }
  return { passed, failed: failures.length, failures, skipped, retried, slowest: slowestOf(modules) };
}

/** Loading a file counts: what it imports is part of what it costs. */
function slowestOf(modules: readonly TestModule[]): readonly FileDuration[] {
  const durations = modules.map((module) => {
    const { duration, collectDuration } = module.diagnostic();
    return { path: module.relativeModuleId, seconds: (duration + collectDuration) / 1000 };
  });
  return durations.sort((a, b) => b.seconds - a.seconds).slice(0, SLOWEST_FILES);
}
