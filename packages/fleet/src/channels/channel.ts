/**
 * What a chat channel is: messages with files come in, answers go out. A channel knows its platform; what it hands over is
 * already placed: files lie in the thread's uploads and the text says where.
 *
 * Invariants
 * - A message is handed over once, however often the platform delivers it, and in order within its conversation.
 * - A file that could not be had is said so in the text. It never keeps the message from arriving.
 * - User and thread are derived from what the platform vouches for, never from what a message says.
 */

export interface Channel {
  readonly name: string;
  /** Resolves when messages can arrive. */
  start(): Promise<void>;
  /** Takes no more messages, finishes those that were taken. */
  stop(): Promise<void>;
}

export interface ChannelMessage {
  /** As `fleet.acquire` takes it. */
  readonly user: string;
  readonly thread: string;
  /** With the path, or the failure, in place of each file. */
  readonly text: string;
  readonly files: readonly ReceivedFile[];
  /** Answers in the same conversation. */
  reply(text: string): Promise<void>;
}

export interface ReceivedFile {
  readonly kind: FileKind;
  /** Inside the sandbox; `null` when it could not be had. */
  readonly path: string | null;
  readonly sizeBytes: number | null;
  readonly problem: string | null;
}

export type FileKind = "file" | "image";

/** A file that a message announces. */
export interface AnnouncedFile {
  readonly kind: FileKind;
  /** What the sender calls it; not to be trusted. */
  readonly name: string | null;
  /** What to call it when nobody says. */
  readonly fallbackName: string;
  open(signal: AbortSignal): Promise<OpenedFile>;
}

export interface OpenedFile {
  readonly name: string | null;
  /** As far as the platform says. */
  readonly sizeBytes: number | null;
  readonly content: AsyncIterable<Uint8Array>;
  /** Ends the download, whether or not anybody has begun to read it. Harmless when it is over. */
  discard(): void;
}
