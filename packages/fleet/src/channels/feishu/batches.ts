/**
 * Files dropped into a chat together arrive as one message each. This batches them for a moment into one message, under
 * the first of them.
 *
 * Invariants
 * - Only messages that are nothing but one file, and that are no reply, are batched; per chat and sender.
 * - Each file keeps the id of the message it came with.
 * - Order is kept: any other message from the same sender in the same chat ends the batch before it.
 */

import type { Timer, World } from "../../world/world.ts";
import { FILE_PLACEHOLDER } from "../received-messages.ts";
import type { FeishuMessage } from "./message.ts";

/** Long enough for a drop of several files, short enough to go unnoticed. */
const BATCH_WINDOW_MS = 750;
interface Batch {
  readonly messages: FeishuMessage[];
  readonly timer: Timer;
}

export class FileBatches {
  readonly #world: World;
  readonly #maxFiles: number;
  readonly #handOver: (message: FeishuMessage) => void;
  readonly #open = new Map<string, Batch>();

  /** A batch of `maxFiles` is handed over at once: a message with more would be refused. */
  constructor(world: World, maxFiles: number, handOver: (message: FeishuMessage) => void) {
    this.#world = world;
    this.#maxFiles = maxFiles;
    this.#handOver = handOver;
  }

  add(message: FeishuMessage): void {
    const key = JSON.stringify([message.tenantKey, message.chatId, message.openId]);
    if (!isLoneFile(message)) {
      this.#close(key);
      this.#handOver(message);
      return;
    }
    const batch = this.#open.get(key);
    if (batch === undefined) {
      const timer = this.#world.timer(BATCH_WINDOW_MS, () => this.#close(key));
      this.#open.set(key, { messages: [message], timer });
    } else {
      batch.messages.push(message);
      if (batch.messages.length >= this.#maxFiles) this.#close(key);
    }
  }

  /** Hands over what is still waiting. */
  flush(): void {
    for (const key of [...this.#open.keys()]) this.#close(key);
  }

  #close(key: string): void {
    const batch = this.#open.get(key);
    if (batch === undefined) return;
    this.#open.delete(key);
    batch.timer.cancel();
    const [anchor] = batch.messages;
    if (anchor === undefined) return;
    const text = batch.messages.map((message) => message.text).join("\n");
    this.#handOver({ ...anchor, text, files: batch.messages.flatMap(({ files }) => files) });
  }
}

function isLoneFile({ text, files, isReply }: FeishuMessage): boolean {
  return !isReply && files.length === 1 && text === FILE_PLACEHOLDER;
}
