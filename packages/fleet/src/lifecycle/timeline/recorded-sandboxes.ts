/** The sandboxes that this instance uses, with what is known of their commands from one connection to the next. */

import type { FleetEvent, Generation, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import type { Attachment } from "../../backend/backend.ts";
import type { EventBus } from "../../observe/event-bus.ts";
import type { ReadyRecord } from "../../store/record.ts";
import { isAnonymous } from "../../store/record.ts";
import type { World } from "../../world/world.ts";
import { recordedAttachment } from "./recorded-sandbox.ts";
import { SpawnedCommands } from "./spawned-commands.ts";
import type { TerminalCommands } from "./terminal-commands.ts";
import type { TimelineRecorder } from "./timeline-recorder.ts";

interface Owner {
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly generation: Generation;
}

interface Known {
  readonly owner: Owner;
  readonly spawned: SpawnedCommands;
  readonly terminals: Map<string, TerminalCommands>;
}

const SANDBOXES_MAX = 2_000;

export class RecordedSandboxes {
  readonly #world: World;
  readonly #recorder: TimelineRecorder;
  readonly #known = new Map<SandboxId, Known>();

  constructor({ world, bus, recorder }: { world: World; bus: EventBus; recorder: TimelineRecorder }) {
    this.#world = world;
    this.#recorder = recorder;
    bus.on((event) => this.#heard(event), "sandbox-lost", "sandbox-stopped");
  }

  recorded(attachment: Attachment, record: ReadyRecord): Attachment {
    const { user, thread, sandboxId, generation } = record;
    if (user === null || thread === null || isAnonymous(thread)) return attachment;
    const { spawned, terminals } = this.#of({ user, thread, sandboxId, generation });
    return recordedAttachment(attachment, {
      note: (note) => this.#recorder.note(user, thread, { sandboxId, generation }, note),
      monotonicMs: () => this.#world.monotonicMs(),
      later: (ms, fire) => this.#world.timer(ms, fire, { background: true }),
      newId: () => this.#world.randomHex(5),
      ...{ spawned, terminals },
    });
  }

  /** Whose a sandbox was when this instance used it last. */
  ownerOf(sandboxId: SandboxId): Owner | undefined {
    return this.#known.get(sandboxId)?.owner;
  }

  #of(owner: Owner & { readonly sandboxId: SandboxId }): Known {
    const { sandboxId, generation } = owner;
    const before = this.#known.get(sandboxId);
    const isSame = before?.owner.generation === generation;
    const known = isSame ? before : { owner, spawned: new SpawnedCommands(this.#world), terminals: new Map() };
    this.#known.delete(sandboxId);
    this.#known.set(sandboxId, known);
    for (const [oldest] of this.#known) {
      if (this.#known.size <= SANDBOXES_MAX) break;
      this.#known.delete(oldest);
    }
    return known;
  }

  #heard(event: FleetEvent): void {
    if (event.type !== "sandbox-stopped" && event.type !== "sandbox-lost") return;
    // Another instance may still have it: only what nothing can be asked of any more is lost.
    if (event.type === "sandbox-lost" && event.reason !== "crashed" && event.reason !== "destroyed") return;
    const known = this.#known.get(event.sandboxId);
    if (known?.owner.generation !== event.generation) return;
    known.spawned.lost();
    this.#known.delete(event.sandboxId);
  }
}
