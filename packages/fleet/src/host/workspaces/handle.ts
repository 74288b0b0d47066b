/**
 * A thread's workspace, held by a descriptor. It stays the same workspace while that is moved between home and slot, and
 * nothing a sandbox plants can lead out of it.
 */

import { closeSync, lstatSync } from "node:fs";
import { fdPath } from "../descriptors.ts";
import { type CopyLimits, type CopyOutcome, copyWorkspace } from "./copying.ts";
import type { Account } from "./tree.ts";
import { type FileParts, WorkspaceFiles } from "./workspace-files.ts";

export class WorkspaceHandle {
  readonly files: WorkspaceFiles;
  readonly #descriptor: number;
  readonly #account: () => Account;
  #isClosed = false;
  #uses = 0;

  /** Takes the descriptor over. */
  constructor(descriptor: number, parts: FileParts) {
    this.#descriptor = descriptor;
    this.#account = parts.account;
    this.files = new WorkspaceFiles((work) => this.#use(work), parts);
  }

  /** A way to the workspace for this process, good until the handle is closed. What is below it is not to be trusted. */
  get path(): string {
    this.#checkOpen();
    return fdPath(this.#descriptor);
  }

  /** Copies what is in it to an empty workspace that no sandbox can reach. */
  copyTo(path: string, limits?: CopyLimits): Promise<CopyOutcome> {
    // Everything in it belongs to whom its root belongs.
    const account = this.#account() === null ? null : lstatSync(path);
    return this.#use((descriptor) => copyWorkspace(descriptor, path, account, limits));
  }

  /** What is going on is finished first; nothing new begins. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#closeIfUnused();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** A closed descriptor's number may soon be another file's, so it stays open while anybody goes by it. */
  async #use<T>(work: (descriptor: number) => Promise<T>): Promise<T> {
    this.#checkOpen();
    this.#uses++;
    try {
      return await work(this.#descriptor);
    } finally {
      this.#uses--;
      this.#closeIfUnused();
    }
  }

  #closeIfUnused(): void {
    if (this.#isClosed && this.#uses === 0) closeSync(this.#descriptor);
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new Error("The workspace's handle is closed.");
  }
}
