/** The disk budget of a sandbox, for writes that go to its workspace directly and not through the sandbox. */

export interface WriteBudget {
  /**
   * Runs a write of `bytes` in `files` new files, if they fit; otherwise `disk_limit_exceeded`. The write requests more
   * as it grows.
   */
  admit<T>(path: string, bytes: number, files: number, write: (grow: Grow) => Promise<T>): Promise<T>;
}

/** Lets a write take more than it began with. */
export type Grow = (bytes: number) => Promise<void>;

/** Content that requests budget for its bytes before it passes them on. */
export async function* metered(content: AsyncIterable<Uint8Array>, grow: Grow): AsyncGenerator<Uint8Array> {
  for await (const chunk of content) {
    await grow(chunk.byteLength);
    yield chunk;
  }
}
