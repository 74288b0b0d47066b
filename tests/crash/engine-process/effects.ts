/** The effect of each call on the ledger, at the moment when it takes effect. */

import { SandlotError } from "@sandlot/contract";
import { FLEET } from "../settings.ts";
import type { EngineCalls, Method } from "../wire.ts";
import type { Engine } from "./engine.ts";
import type { AttachmentOf, Peer } from "./peer.ts";

type Effects = {
  [M in Method]: (
    peer: Peer,
    ...args: Parameters<EngineCalls[M]>
  ) => ReturnType<EngineCalls[M]> | Promise<ReturnType<EngineCalls[M]>>;
};

/** A young sandbox may be busy inside, which postpones its end. */
const BUSY_SHARE = 0.15;
const BUSY_AGE_MAX_MS = 4_000;
/** One in so many writes is forgotten, where that is planted. */
const FORGOTTEN_ONE_IN = 10;

export function effectsOf(engine: Engine): Effects {
  const { ledger, checks, announcements, attachments } = engine;
  let attachmentIds = 0;

  const attachmentOf = (id: number): AttachmentOf => {
    const attachment = attachments.get(id);
    if (attachment !== undefined) return attachment;
    throw new SandlotError("sandbox_unreachable", {
      sandboxId: "",
      problem: "the connection is closed",
      retryAfterMs: 50,
    });
  };
  const detach = (peer: Peer, id: number) => {
    const attachment = attachments.get(id);
    attachment?.object.connections.delete(attachment.onDeath);
    attachments.delete(id);
    peer.attachments.delete(id);
  };

  return {
    hello(peer, { name, pid }) {
      peer.name = name;
      peer.pid = pid;
    },
    create: (peer, spec) => ledger.create(spec, peer.name),
    attach(peer, target) {
      const object = ledger.reach(target);
      attachmentIds += 1;
      const id = attachmentIds;
      const onDeath = () => {
        detach(peer, id);
        peer.send({ push: "closed", attachment: id });
      };
      const attachment = { id, peer, target, object, onDeath, used: false, doubted: false };
      // A process that is gone keeps no connection open.
      if (!peer.isOpen) return id;
      object.connections.add(onDeath);
      attachments.set(id, attachment);
      peer.attachments.set(id, attachment);
      return id;
    },
    detach,
    append(_, id, entry) {
      const attachment = attachmentOf(id);
      const workspace = checks.used(attachment, ledger.reach(attachment.target), entry);
      attachment.used = true;
      checks.wrote(workspace, entry.token);
      if (engine.plant === "lost-write" && engine.random.between(1, FORGOTTEN_ONE_IN) === 1) return;
      workspace.tokens.add(entry.token);
    },
    grep(_, id, entry) {
      const attachment = attachmentOf(id);
      const workspace = checks.used(attachment, ledger.reach(attachment.target), entry);
      attachment.used = true;
      checks.read(workspace);
      return workspace.tokens.has(entry.token);
    },
    rebind(peer, target, from) {
      ledger.rebind(target, from);
      checks.rebound(peer, ledger.reach(target), target);
    },
    probe: (_, ref) => ledger.probe(ref),
    async destroy(peer, ref) {
      const object = ledger.objects.get(ref);
      if (object?.alive === true) await checks.destroying(peer, object);
      const markers = object === undefined ? [] : ledger.markersOf(object.labels.sandboxId);
      ledger.destroy(ref);
      if (engine.plant === "leak" && object !== undefined) for (const marker of markers) keepMarker(marker);
    },
    list(_, { sandboxId }) {
      const objects = ledger.list(FLEET);
      return sandboxId === undefined ? objects : objects.filter((object) => object.labels.sandboxId === sandboxId);
    },
    activity(_, ref) {
      const object = ledger.objects.get(ref);
      if (object?.alive !== true)
        throw new SandlotError("sandbox_lost", { sandboxId: "", generation: 0, reason: "crashed" });
      const isYoung = performance.now() - object.landedAt < BUSY_AGE_MAX_MS;
      const runningExecs = isYoung && engine.random.chance(BUSY_SHARE) ? 1 : 0;
      return { runningExecs, openTerminals: 0, previewTrafficAt: null, cpuShare: 0 };
    },
    latestGeneration: () => ledger.latestGeneration(),
    look: (_, spot) => ledger.look(spot),
    moveIn: (_, spot) => ledger.moveIn(spot),
    makeIn: (_, spot) => ledger.makeIn(spot),
    moveHome: (_, spot) => ledger.moveHome(spot),
    quarantine(_, spot) {
      // Quarantined writes count as lost, if they were acknowledged.
      ledger.quarantine(spot);
    },
    purge: (peer, spot) => checks.purged(peer, spot, ledger.purge(spot)),
    writeMarker: (_, marker) => ledger.writeMarker(marker),
    markers: (_, sandboxId) => ledger.markersOf(sandboxId),
    dropMarker: (_, sandboxId, generation) => ledger.dropMarker(sandboxId, generation),
    crash(_, owner) {
      const used = [...ledger.objects.values()].filter((object) => object.alive && object.writers.has(owner));
      if (used.length > 0) ledger.crash(engine.random.pick(used));
    },
    announce: (peer, what, owner) => announcements.add(what, owner, peer),
    settled: (_, ticket) => announcements.settled(ticket),
    doubted: (peer) => peer.doubt(),
  };

  function keepMarker(marker: Parameters<typeof ledger.writeMarker>[0]): void {
    ledger.markers.set(marker.sandboxId, new Map([[marker.generation, marker]]));
  }
}
