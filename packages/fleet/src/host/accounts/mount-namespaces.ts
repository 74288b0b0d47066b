/**
 * Private mount namespaces, prepared before anything runs in them: some paths show their files as another account's,
 * some are mounted again at a place that every account can reach.
 *
 * Only a thread that shares its root and working directory with no other may enter a mount namespace. The threads of a
 * Node process all share theirs, so a separate thread does this. It creates a namespace, mounts, opens it and returns
 * to the host's; the descriptor is the only reference to the namespace.
 *
 * Invariants
 * - Nothing is mounted on the host. The mounts go with the last process or descriptor of the namespace.
 * - Between two requests the thread is in the host's namespace. If it cannot return there, it ends, and the next
 *   request starts another.
 * - The thread ends only by itself, between two requests, and an exiting process waits until its requests are done.
 *   Stopping a thread that is inside koffi aborts the whole process.
 */

import { closeSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { z } from "zod";
import { koffiPath } from "./system-calls.ts";

/** Shows the files at a path, including mounts below it, with the owners that the user namespace maps to. */
export interface MappedPath {
  readonly path: string;
  readonly userNamespace: number;
}

export type MountStep =
  /** An empty file system that every account may traverse. */
  | { readonly do: "cover"; readonly path: string }
  /** Mounts `from`, including mounts below it, at `to`, and creates `to` if it is missing. */
  | { readonly do: "bind"; readonly from: string; readonly to: string };

const answerSchema = z.union([
  z.object({ id: z.int(), descriptor: z.int() }),
  z.object({ id: z.int(), problem: z.string() }),
]);

/**
 * The thread's program. It is text, so it needs no file of its own after bundling. `workerData` has the path of koffi,
 * and a word that counts the thread's pending work. The thread ends when no request is pending. All mounts become
 * slaves first: no mount leaves the namespace, and an unmount on the host reaches it.
 */
const THREAD = `
const fs = require("node:fs");
const { getSystemErrorName } = require("node:util");
const { parentPort, workerData } = require("node:worker_threads");
const holder = { exports: {} };
process.dlopen(holder, workerData.koffi);
const koffi = holder.exports;
const libc = koffi.load(null);
const openTree = libc.func("long syscall(long, long, str, unsigned int)");
const setAttributes = libc.func("long syscall(long, long, str, unsigned int, void *, size_t)");
const moveMount = libc.func("long syscall(long, long, str, long, str, unsigned int)");
const mount = libc.func("int mount(str, str, str, unsigned long, str)");
const unshare = libc.func("int unshare(int)");
const setns = libc.func("int setns(int, int)");
const NEW_MOUNTS = 0x20000, FD_CWD = -100, EMPTY_PATH = 0x1000, RECURSIVE = 0x8000;
const own = "/proc/thread-self/ns/mnt";
const host = fs.openSync(own, "r");
const checked = (what, result) => {
  if (result < 0) throw new Error(what + ": " + getSystemErrorName(-koffi.errno()));
  return result;
};
const copy = (trees, { path, userNamespace }) => {
  const tree = checked("open_tree " + path, openTree(428, FD_CWD, path, 1 | 0o2000000 | 0x100 | RECURSIVE));
  trees.push({ tree, path });
  const attributes = new Uint8Array(new BigUint64Array([0x100000n, 0n, 0n, BigInt(userNamespace)]).buffer);
  checked("mount_setattr " + path, setAttributes(442, tree, "", EMPTY_PATH | RECURSIVE, attributes, 32));
};
// All are copied before any is attached: what is mapped already cannot be mapped again.
const map = (mapped) => {
  const trees = [];
  try {
    for (const one of mapped) copy(trees, one);
    for (const { tree, path } of trees) checked("move_mount " + path, moveMount(429, tree, "", FD_CWD, path, 4));
  } finally {
    for (const { tree } of trees) fs.closeSync(tree);
  }
};
const steps = {
  cover({ path }) {
    checked("mount " + path, mount("sandlot", path, "tmpfs", 2 | 4, "mode=0711,size=64k"));
  },
  bind({ from, to }) {
    if (!fs.existsSync(to)) {
      if (fs.statSync(from).isDirectory()) fs.mkdirSync(to);
      else fs.writeFileSync(to, "");
    }
    checked("mount " + from, mount(from, to, null, 0x1000 | 0x4000, null));
  },
};
const done = () => {
  Atomics.sub(workerData.left, 0, 1);
  Atomics.notify(workerData.left, 0);
};
parentPort.on("message", (request) => {
  if (request === null) process.exit(0);
  const { id, wanted } = request;
  let answer;
  try {
    checked("unshare", unshare(NEW_MOUNTS));
    checked("mount /", mount("none", "/", null, 0x4000 | 0x80000, null));
    map(wanted.mapped);
    for (const step of wanted.steps) steps[step.do](step);
    answer = { id, descriptor: fs.openSync(own, "r") };
  } catch (error) {
    answer = { id, problem: error.message };
  }
  if (setns(host, NEW_MOUNTS) < 0) process.exit(1);
  parentPort.postMessage(answer);
  done();
});
done();
`;

/** A request and the start of the thread each take some milliseconds. */
const WAIT_MAX_MS = 5_000;
/** Pending work of every running thread: its start and its requests. */
const threads = new Set<Int32Array>();

function waitForThreads(): void {
  for (const left of threads) {
    for (let count = Atomics.load(left, 0); count > 0; count = Atomics.load(left, 0))
      if (Atomics.wait(left, 0, count, WAIT_MAX_MS) === "timed-out") break;
  }
}

interface Waiting {
  resolve(descriptor: number): void;
  reject(error: Error): void;
}

export class MountNamespaces {
  readonly #waiting = new Map<number, Waiting>();
  #worker: Worker | null = null;
  #left: Int32Array | null = null;
  #lastId = 0;

  /** Starts the thread early: its start takes longer than a request. */
  prepare(): void {
    this.#started();
  }

  /** A descriptor of a namespace with all of it mounted; the caller closes it. Rejects with the failed step. */
  make(wanted: { readonly mapped: readonly MappedPath[]; readonly steps: readonly MountStep[] }): Promise<number> {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const worker = this.#started();
      this.#waiting.set(id, { resolve, reject });
      worker.ref();
      if (this.#left !== null) Atomics.add(this.#left, 0, 1);
      worker.postMessage({ id, wanted });
    });
  }

  close(): void {
    this.#end(new Error("the fleet was closed"));
  }

  #started(): Worker {
    if (this.#worker !== null) return this.#worker;
    const left = new Int32Array(new SharedArrayBuffer(4)).fill(1);
    const worker = new Worker(THREAD, {
      ...{ eval: true, workerData: { koffi: koffiPath(), left }, env: {}, execArgv: [], name: "sandlot-mounts" },
      // Other code closes the descriptors that the thread opens.
      trackUnmanagedFds: false,
    });
    this.#worker = worker;
    this.#left = left;
    if (threads.size === 0) process.on("exit", waitForThreads);
    threads.add(left);
    worker.once("exit", () => {
      threads.delete(left);
      if (threads.size === 0) process.off("exit", waitForThreads);
    });
    const ended = (error: Error) => this.#worker === worker && this.#end(error);
    worker.on("message", (message: unknown) => this.#answered(message));
    worker.on("error", ended);
    worker.on("exit", () => ended(new Error("the thread that makes mount namespaces has ended")));
    worker.unref();
    return worker;
  }

  #answered(message: unknown): void {
    const answer = answerSchema.parse(message);
    const waiting = this.#waiting.get(answer.id);
    this.#waiting.delete(answer.id);
    if (this.#waiting.size === 0) this.#worker?.unref();
    if ("problem" in answer) waiting?.reject(new Error(answer.problem));
    else if (waiting === undefined) closeSync(answer.descriptor);
    else waiting.resolve(answer.descriptor);
  }

  #end(error: Error): void {
    const worker = this.#worker;
    this.#worker = null;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
    worker?.postMessage(null);
  }
}
