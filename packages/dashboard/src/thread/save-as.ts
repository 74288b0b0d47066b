/** Gives bytes to the browser as a file. */

/** The browser keeps it under a name without any path. */
export function saveAs(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replaceAll(/[/\\\p{Cc}]/gu, "_");
  link.click();
  // The browser has begun by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** All bytes of a stream; the browser keeps large ones on its disk. */
export async function collect(pieces: AsyncIterable<Uint8Array>, onSize: (size: number) => void): Promise<Blob> {
  const parts: Blob[] = [];
  let waiting: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  let waitingSize = 0;
  const put = () => {
    parts.push(new Blob(waiting));
    waiting = [];
    waitingSize = 0;
  };
  for await (const piece of pieces) {
    waiting.push(piece as Uint8Array<ArrayBuffer>);
    size += piece.byteLength;
    waitingSize += piece.byteLength;
    if (waitingSize > 4 * 1024 * 1024) put();
    onSize(size);
  }
  put();
  return new Blob(parts, { type: "application/octet-stream" });
}
