/**
 * A stage for the network: a machine with proxies, an outside with servers, and nothing of the real network.
 */

import { type ChildProcess, execFileSync, fork } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { NetworkPolicy } from "../../../../src/backend/network/policy.ts";
import {
  type Authority,
  createAuthority,
  issueCertificate,
} from "../../../../src/host/egress/certificates/authority.ts";
import type { EgressLimits } from "../../../../src/host/egress/limits.ts";
import type { EgressStats } from "../../../../src/host/egress/proxy/egress-proxy.ts";
import type { Refusal } from "../../../../src/host/egress/rules/decide.ts";
import type { OutsideSettings } from "./outside.ts";

export interface ProxyOrder {
  readonly type: "proxy";
  readonly call: number;
  readonly proxy: number;
  readonly policy: NetworkPolicy;
  /** Per name, the responses of one look-up after the other. */
  readonly answers: Readonly<Record<string, readonly (readonly string[])[]>>;
  readonly limits?: Partial<EgressLimits> | undefined;
  readonly upstreamCa?: readonly string[] | undefined;
  readonly authority?: Authority | undefined;
  readonly at:
    | { readonly socketPath: string }
    | {
        readonly directory: string;
        readonly sandboxId: string;
        readonly account?: { uid: number; gid: number } | undefined;
        readonly way: "namespace" | "socket";
        readonly namespace?: { pid: number } | undefined;
      };
}

export type MachineOrder =
  | { readonly type: "begin"; readonly call: number; readonly outside: OutsideSettings }
  | { readonly type: "lookups"; readonly call: number }
  | { readonly type: "run"; readonly call: number; readonly command: readonly string[] }
  | { readonly type: "stats" | "close"; readonly call: number; readonly proxy: number }
  | ProxyOrder;

export type MachineNotice =
  | { readonly type: "done"; readonly call: number; readonly result: unknown }
  | { readonly type: "failed"; readonly call: number; readonly problem: string }
  | { readonly type: "refused"; readonly proxy: number; readonly refusal: Refusal };

export interface StartedProxy {
  /** Of its process. */
  readonly pid: number;
  readonly enter: readonly string[] | null;
}

export interface StagedProxy {
  readonly id: number;
  started: StartedProxy;
  readonly socketPath: string;
  readonly refusals: Refusal[];
  stats(): Promise<EgressStats>;
  close(): Promise<void>;
}

export type ProxyWish = Omit<ProxyOrder, "type" | "call" | "proxy" | "at"> & { readonly at?: ProxyOrder["at"] };

/** The names that the outside's certificate is for. */
const SECURE_HOSTS = ["api.example.com", "files.example.com"];

type Without<Order> = Order extends MachineOrder ? Omit<Order, "call"> : never;

export class NetworkStage {
  readonly directory = mkdtempSync(join(tmpdir(), "sln-"));
  /** The issuer of the outside's certificate. */
  readonly outsideAuthority = createAuthority(SECURE_HOSTS, Date.now());
  readonly #machine: ChildProcess;
  readonly #calls = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  readonly #proxies = new Map<number, StagedProxy>();
  #next = 1;

  private constructor(machine: ChildProcess) {
    this.#machine = machine;
    machine.on("message", (notice: MachineNotice) => this.#hear(notice));
    machine.once("exit", () => {
      for (const call of this.#calls.values()) call.reject(new Error("the machine of the stage has ended"));
    });
  }

  static async open(files: Readonly<Record<string, string>> = {}): Promise<NetworkStage> {
    const file = fileURLToPath(new URL("./machine.ts", import.meta.url));
    const execArgv = ["--net", "--mount", process.execPath, "--conditions=sandlot-source"];
    const stage = new NetworkStage(
      fork(file, { execPath: "unshare", execArgv, stdio: ["ignore", "inherit", "inherit", "ipc"] }),
    );
    const { certificatePem, keyPem } = issueCertificate(
      stage.outsideAuthority,
      SECURE_HOSTS[0]!,
      Date.now(),
      SECURE_HOSTS,
    );
    await stage.#order({ type: "begin", outside: { directory: stage.directory, certificatePem, keyPem, files } });
    return stage;
  }

  async proxy(wish: ProxyWish): Promise<StagedProxy> {
    const id = this.#next++;
    const at = wish.at ?? { socketPath: join(this.directory, `${id}.sock`) };
    const socketPath = "socketPath" in at ? at.socketPath : join(at.directory, "inside", "proxy.sock");
    const proxy: StagedProxy = {
      ...{ id, started: { pid: 0, enter: null }, socketPath, refusals: [] },
      stats: () => this.#order({ type: "stats", proxy: id }) as Promise<EgressStats>,
      close: async () => void (await this.#order({ type: "close", proxy: id })),
    };
    this.#proxies.set(id, proxy);
    proxy.started = (await this.#order({ ...wish, type: "proxy", proxy: id, at })) as StartedProxy;
    return proxy;
  }

  lookups(): Promise<readonly string[]> {
    return this.#order({ type: "lookups" }) as Promise<readonly string[]>;
  }

  /** Runs a command on the machine itself, without any proxy. */
  run(...command: string[]): Promise<string> {
    return this.#order({ type: "run", command }) as Promise<string>;
  }

  async close(): Promise<void> {
    const gone = new Promise((resolve) => this.#machine.once("exit", resolve));
    this.#machine.disconnect();
    await gone;
    rmSync(this.directory, { recursive: true, force: true });
  }

  #order(order: Without<MachineOrder>): Promise<unknown> {
    const call = this.#next++;
    return new Promise((resolve, reject) => {
      this.#calls.set(call, { resolve, reject });
      this.#machine.send({ ...order, call });
    });
  }

  #hear(notice: MachineNotice): void {
    if (notice.type === "refused") {
      this.#proxies.get(notice.proxy)?.refusals.push(notice.refusal);
      return;
    }
    const call = this.#calls.get(notice.call);
    this.#calls.delete(notice.call);
    if (notice.type === "done") call?.resolve(notice.result);
    else call?.reject(new Error(notice.problem));
  }
}

/** Why a stage cannot be made here, or `null`. */
export function stageProblem(...programs: readonly string[]): string | null {
  for (const program of ["unshare", "nsenter", "ip", ...programs]) {
    try {
      execFileSync("which", [program], { stdio: "ignore" });
    } catch {
      return `${program} is not installed`;
    }
  }
  try {
    execFileSync("unshare", ["--net", "true"], { stdio: "ignore" });
    return null;
  } catch {
    return "no network namespace can be made by this user";
  }
}
