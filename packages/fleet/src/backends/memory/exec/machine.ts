/**
 * The inside of one sandbox: its file tree, its environment and its processes.
 *
 * Commands run on one thread without pre-emption, so they cooperate: a command calls `breathe` at every step, which
 * throws `Killed` when its process was ended, and yields to the host after some work. So `while true; do :; done` ends
 * by its timeout.
 */

import { abortable, sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { FileTree } from "../files/tree.ts";

/** Ends a process from outside. Only the code that started the process catches it. */
export class Killed extends Error {
  override readonly name = "Killed";
  readonly signal: string;

  constructor(signal: string) {
    super(`ended by ${signal}`);
    this.signal = signal;
  }
}

export class TooManyProcesses extends Error {
  override readonly name = "TooManyProcesses";

  constructor() {
    super("Cannot fork: Resource temporarily unavailable");
  }
}

/** A fork bomb ends here, not at the host's memory. */
const PROCESSES_MAX = 512;
/** Steps between two looks at the clock, and the time between two yields to the host. */
const STEPS_PER_LOOK = 64;
const STEPS_PER_BREATH = 4_096;
const BREATH_MS = 10;

export class Machine {
  readonly tree: FileTree;
  readonly world: World;
  readonly environment: Readonly<Record<string, string>>;
  readonly #processes = new Map<number, Process>();
  #lastPid = 1;

  constructor(options: {
    tree: FileTree;
    world: World;
    environment: Readonly<Record<string, string>>;
  }) {
    this.tree = options.tree;
    this.world = options.world;
    this.environment = options.environment;
  }

  /** Starts a process that runs `work` and ends with it. A timeout ends `group` as a whole. */
  start(group: Set<Process>, background: boolean, work: (process: Process) => Promise<number>): Process {
    if (this.#processes.size >= PROCESSES_MAX) throw new TooManyProcesses();
    const process = new Process(this, ++this.#lastPid, group, background);
    this.#processes.set(process.pid, process);
    group.add(process);
    process.begin(work, () => {
      this.#processes.delete(process.pid);
      group.delete(process);
    });
    return process;
  }

  process(pid: number): Process | undefined {
    return this.#processes.get(pid);
  }

  killAll(): void {
    for (const process of [...this.#processes.values()]) process.kill("SIGKILL");
  }
}

export class Process {
  readonly machine: Machine;
  readonly pid: number;
  readonly group: Set<Process>;
  readonly background: boolean;
  /** Its exit status, or the signal that ended it. Never rejects. */
  ended: Promise<number | Killed> = Promise.resolve(0);
  readonly #controller = new AbortController();
  #steps = 0;
  #breathedAt: number;

  constructor(machine: Machine, pid: number, group: Set<Process>, background: boolean) {
    this.machine = machine;
    this.pid = pid;
    this.group = group;
    this.background = background;
    this.#breathedAt = machine.world.monotonicMs();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Marks it ended for all observers at once; its work stops at the next step and changes nothing more. */
  kill(signal: string): void {
    this.#controller.abort(new Killed(signal));
  }

  begin(work: (process: Process) => Promise<number>, gone: () => void): void {
    const run = async () => {
      try {
        return await abortable(work(this), this.signal);
      } catch (error) {
        if (error instanceof Killed) return error;
        return 2;
      } finally {
        gone();
      }
    };
    this.ended = run();
  }

  async breathe(): Promise<void> {
    this.signal.throwIfAborted();
    if (++this.#steps % STEPS_PER_LOOK !== 0) return;
    const world = this.machine.world;
    if (this.#steps < STEPS_PER_BREATH && world.monotonicMs() - this.#breathedAt < BREATH_MS) return;
    await this.pause(0);
    this.#steps = 0;
    this.#breathedAt = world.monotonicMs();
  }

  /** A background job does not keep the host's process alive, because no caller waits for it. */
  pause(ms: number): Promise<void> {
    return sleep(this.machine.world, ms, this.signal, { background: this.background });
  }
}
