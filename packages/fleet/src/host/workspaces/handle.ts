/**
 * A thread's workspace, held by a descriptor. The descriptor stays valid while the workspace moves between home and
 * slot, and nothing a sandbox plants can lead out of it.
 */

import { closeSync, lstatSync } from "node:fs";
import { fdPath } from "../descriptors.ts";
import type { Account } from "./tree.ts";
import { type CopyLimits, type CopyOutcome, copyWorkspace } from "./tree-copy.ts";
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

  /** A path to the workspace for this process, valid until the handle is closed. Everything below it is untrusted. */
  get path(): string {
    this.#checkOpen();
    return fdPath(this.#descriptor);
  }

  /** Copies the content to an empty workspace that no sandbox can reach. */
  copyTo(path: string, limits?: CopyLimits): Promise<CopyOutcome> {
    // Everything in it has the owner of its root.
    const account = this.#account() === null ? null : lstatSync(path);
    return this.#use((descriptor) => copyWorkspace(descriptor, path, account, limits));
  }

  /** Finishes running operations; starts no new ones. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#closeIfUnused();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** The number of a closed descriptor may be reused, so it stays open while any operation uses it. */
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
