/**
 * The contract of a chat channel: messages with files come in, replies go out. A channel knows its platform; it hands
 * over complete messages: files are in the thread's uploads and the text has their paths.
 *
 * Invariants
 * - A message is handed over once, however often the platform delivers it, and in order within its conversation.
 * - A missing file is reported in the text. It never keeps the message from arriving.
 * - User and thread are derived from what the platform authenticates, never from a message's content.
 */

export interface Channel {
  readonly name: string;
  /** Resolves when messages can arrive. */
  start(): Promise<void>;
  /** Accepts no more messages, finishes the accepted ones. */
  stop(): Promise<void>;
}

export interface ChannelMessage {
  /** As `fleet.acquire` takes it. */
  readonly user: string;
  readonly thread: string;
  /** With the path, or the failure, in place of each file. */
  readonly text: string;
  readonly files: readonly ReceivedFile[];
  /** Replies in the same conversation. */
  reply(text: string): Promise<void>;
}

export interface ReceivedFile {
  readonly kind: FileKind;
  /** Inside the sandbox; `null` when the download failed. */
  readonly path: string | null;
  readonly sizeBytes: number | null;
  readonly problem: string | null;
}

export type FileKind = "file" | "image";

/** A file that a message announces. */
export interface AnnouncedFile {
  readonly kind: FileKind;
  /** The sender's name for it; untrusted. */
  readonly name: string | null;
  /** The name without one from the sender. */
  readonly fallbackName: string;
  open(signal: AbortSignal): Promise<OpenedFile>;
}

export interface OpenedFile {
  readonly name: string | null;
  /** According to the platform. */
  readonly sizeBytes: number | null;
  readonly content: AsyncIterable<Uint8Array>;
  /** Ends the download, read or not. Harmless when it is over. */
  discard(): void;
}
