/** The dashboard of a gateway: its sessions, what it knows of the past, and what its starter told it about itself. */

import type { Fleet } from "../../fleet.ts";
import type { World } from "../../world/world.ts";
import { FleetFacts } from "./fleet-facts.ts";
import type { GatewayAbout } from "./gateway-about.ts";
import type { DashboardSessions } from "./sessions.ts";

export class Dashboard {
  readonly sessions: DashboardSessions;
  readonly facts: FleetFacts;
  readonly about: GatewayAbout | null;

  constructor(parts: {
    readonly sessions: DashboardSessions;
    readonly fleet: Pick<Fleet, "events">;
    readonly world: World;
    readonly about: GatewayAbout | null;
  }) {
    this.sessions = parts.sessions;
    this.facts = new FleetFacts(parts.fleet, parts.world);
    this.about = parts.about;
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
