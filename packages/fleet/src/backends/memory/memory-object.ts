/**
 * One sandbox as the engine in memory has it: labels, liveness, the credentials its daemon takes, and its inside.
 */

import { type EngineRef, type Generation, type LossReason, SandlotError } from "@sandlot/contract";
import type { Credentials, Place, Target } from "../../backend/backend.ts";
import type { Labels } from "../../backend/labels.ts";
import type { World } from "../../world/world.ts";
import type { MemoryObjectView } from "./engine.ts";
import { ExecTable } from "./exec/exec-table.ts";
import { Machine } from "./exec/machine.ts";
import { type DirectoryNode, makePrivateRoot } from "./files/node.ts";
import { MemoryFiles } from "./files/sandbox-files.ts";
import { FileTree } from "./files/tree.ts";
import { runInOwnShell } from "./shell/run.ts";

export interface MemoryObjectOptions {
  readonly ref: EngineRef;
  readonly labels: Labels;
  readonly credentials: Credentials;
  readonly place: Place;
  readonly mnt: DirectoryNode;
  /** The path of the home. */
  readonly home: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly world: World;
}

export class MemoryObject {
  readonly ref: EngineRef;
  readonly labels: Labels;
  readonly place: Place;
  readonly execs: ExecTable;
  readonly files: MemoryFiles;
  /** Resolves when it is dead. */
  readonly ended: Promise<void>;
  #credentials: Credentials;
  #alive = true;
  #markEnded: () => void = () => {};

  constructor({ ref, labels, credentials, place, mnt, home, environment, world }: MemoryObjectOptions) {
    this.ref = ref;
    this.labels = labels;
    this.place = place;
    this.#credentials = credentials;
    const now = () => world.wallMs();
    const tree = new FileTree(makePrivateRoot(now(), mnt, home), now);
    this.files = new MemoryFiles(tree);
    this.execs = new ExecTable(new Machine({ tree, world, environment }), runInOwnShell);
    this.ended = new Promise((resolve) => {
      this.#markEnded = resolve;
    });
  }

  get isAlive(): boolean {
    return this.#alive;
  }

  get generation(): Generation {
    return this.#credentials.generation;
  }

  accepts({ generation, token }: Credentials): boolean {
    return generation === this.#credentials.generation && token === this.#credentials.token;
  }

  /** A second call returns the result of the first. */
  rebind(target: Target, from: Credentials): void {
    if (this.accepts(target)) return;
    if (!this.accepts(from)) {
      const { sandboxId, generation } = target;
      throw new SandlotError("stale_generation", { sandboxId, generation, current: this.generation });
    }
    this.#credentials = { generation: target.generation, token: target.token };
  }

  end(reason: LossReason): void {
    if (!this.#alive) return;
    this.#alive = false;
    const { sandboxId } = this.labels;
    this.execs.lose(new SandlotError("sandbox_lost", { sandboxId, generation: this.generation, reason }));
    this.#markEnded();
  }

  view(): MemoryObjectView {
    const { ref, labels, place, generation } = this;
    return { ref, labels, place, generation, liveness: this.#alive ? "alive" : "dead" };
  }
}
