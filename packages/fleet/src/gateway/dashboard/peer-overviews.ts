/**
 * The overviews of all gateways of a fleet, as one of them shows them: its own, and those of the others over HTTP.
 *
 * Invariants
 * - Only the advertised addresses of instances with a live session are asked, with a credential that the store's gateways
 *   derive for that one instance and this one use. No key of a caller travels. The rules for addresses are those of the
 *   event stream (`peer-stream.ts`).
 * - Each has `ANSWER_MS` and `ANSWER_MAX_BYTES`; one that does not answer is shown as missing, with why.
 * - Pages that ask at the same time share one round of requests.
 */

import {
  type DashboardFleet,
  type DashboardOverview,
  dashboardOverviewSchema,
  PROTOCOL_VERSION,
  SandlotError,
} from "@sandlot/contract";
import type { FleetPeer } from "../../fleet.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { PeerCredential } from "../events/peer-credential.ts";
import { mayAsk } from "../events/peer-stream.ts";

const ANSWER_MS = 2_000;
const ANSWER_MAX_BYTES = 2 * 1024 * 1024;
const PEERS_MAX = 64;

type Shown = DashboardFleet["gateways"][number];

export interface PeerOverviewParts {
  readonly world: World;
  readonly peers: () => Promise<readonly FleetPeer[]>;
  /** `null`: the store is this host's alone, so that another gateway has no common secret. */
  readonly credential: PeerCredential | null;
  readonly ownAddress: string | null;
}

export class PeerOverviews {
  readonly #parts: PeerOverviewParts;
  readonly #rounds = new Map<number, Promise<readonly Shown[]>>();

  constructor(parts: PeerOverviewParts) {
    this.#parts = parts;
  }

  /** Of the others. */
  read(bins: number): Promise<readonly Shown[]> {
    const running = this.#rounds.get(bins);
    if (running !== undefined) return running;
    const round = this.#ask(bins).finally(() => this.#rounds.delete(bins));
    this.#rounds.set(bins, round);
    return round;
  }

  async #ask(bins: number): Promise<readonly Shown[]> {
    const peers = (await this.#parts.peers()).slice(0, PEERS_MAX);
    return Promise.all(
      peers.map(async ({ instance, address, lastBeatAt }) => {
        const shown = { instance, address, isSelf: false, lastBeatAt };
        try {
          return { ...shown, overview: await this.#overviewOf(instance, address, bins), problem: null };
        } catch (error) {
          const problem = error instanceof Error ? error.message : String(error);
          return { ...shown, overview: null, problem: problem.slice(0, 300) };
        }
      }),
    );
  }

  async #overviewOf(instance: string, address: string | null, bins: number): Promise<DashboardOverview> {
    const { world, credential, ownAddress } = this.#parts;
    if (address === null) throw new Error("it does not say where its gateway is (gateway.advertise)");
    if (credential === null) throw new Error("this store is one host's alone: ask that gateway itself");
    if (!mayAsk(address, ownAddress)) throw new Error("its address is on a loopback of another host");
    const late = new AbortController();
    const answered = new AbortController();
    const cut = () => late.abort(new Error(`it did not answer within ${ANSWER_MS} ms`));
    sleep(world, ANSWER_MS, answered.signal, { background: true }).then(cut, () => undefined);
    try {
      const response = await fetch(`${address}/v1/dashboard/overview?bins=${bins}`, {
        headers: { authorization: `Bearer ${credential.for(instance, "overview")}` },
        ...{ signal: late.signal, redirect: "error" },
      });
      if (!response.ok) {
        await response.body?.cancel();
        throw new Error(response.status === 404 ? "it is of an earlier version" : `it answered ${response.status}`);
      }
      const overview = dashboardOverviewSchema.safeParse(JSON.parse(await textOf(response)));
      if (!overview.success) throw new Error(`its overview is of another version than ${PROTOCOL_VERSION}`);
      // Another gateway may have taken over the address.
      if (overview.data.instance !== instance) throw new Error("another gateway answers at its address");
      return overview.data;
    } catch (error) {
      if (late.signal.aborted) throw late.signal.reason;
      throw error instanceof TypeError ? new Error("its gateway cannot be reached", { cause: error }) : error;
    } finally {
      answered.abort();
    }
  }
}

async function textOf({ body }: Response): Promise<string> {
  const decoder = new TextDecoder();
  let [text, size] = ["", 0];
  for await (const piece of body ?? []) {
    size += piece.byteLength;
    if (size > ANSWER_MAX_BYTES)
      throw new SandlotError("payload_too_large", { what: "Its answer", maxBytes: ANSWER_MAX_BYTES });
    text += decoder.decode(piece, { stream: true });
  }
  return text;
}
