/** Paths that something is true of: the number of all, the first ones, and for people a sample as text. */

const SAMPLE_MAX = 100;
const KEPT_MAX = 10_000;

export class PathList {
  count = 0;
  /** Latin-1. */
  readonly paths: string[] = [];

  add(path: string): void {
    this.count++;
    if (this.paths.length < KEPT_MAX) this.paths.push(path);
  }

  sample(): { count: number; paths: string[] } {
    return { count: this.count, paths: this.paths.slice(0, SAMPLE_MAX).map(textOf) };
  }
}

/** A path as text: bytes that are no UTF-8 become U+FFFD. */
export function textOf(path: string): string {
  return Buffer.from(path, "latin1").toString("utf8");
}

/** The bytes of a path given as text. */
export function bytesOf(path: string): string {
  return Buffer.from(path, "utf8").toString("latin1");
}

export function join(path: string, name: string): string {
  return path === "" ? name : `${path}/${name}`;
}
