/** The dashboard of a gateway: its sessions, what it knows of the past, and what its starter told it about itself. */

import type { Fleet } from "../../fleet.ts";
import type { World } from "../../world/world.ts";
import type { PeerCredential } from "../events/peer-credential.ts";
import { FleetFacts } from "./fleet-facts.ts";
import type { GatewayAbout } from "./gateway-about.ts";
import { PeerOverviews } from "./peer-overviews.ts";
import type { DashboardSessions } from "./sessions.ts";

export class Dashboard {
  readonly sessions: DashboardSessions;
  readonly facts: FleetFacts;
  readonly peers: PeerOverviews;
  readonly about: GatewayAbout | null;

  constructor(parts: {
    readonly sessions: DashboardSessions;
    readonly fleet: Pick<Fleet, "events" | "peers" | "pool">;
    readonly world: World;
    readonly home: string;
    readonly about: GatewayAbout | null;
    /** `null`: no other gateway can be asked. */
    readonly credential: PeerCredential | null;
    readonly ownAddress: string | null;
  }) {
    this.sessions = parts.sessions;
    const { fleet, world, home, about, credential, ownAddress } = parts;
    this.facts = new FleetFacts({ fleet, world, home });
    this.peers = new PeerOverviews({ world, credential, ownAddress, peers: () => fleet.peers() });
    this.about = about;
  }

  /** What a browser opens, below the gateway's address. The token stays out of logs: no browser sends this part. */
  linkPath(keyId: string): { readonly path: string; readonly expiresAt: number } {
    const { text, expiresAt } = this.sessions.link(keyId);
    return { path: `/#link=${text}`, expiresAt };
  }

  close(): void {
    this.facts.close();
  }
}
