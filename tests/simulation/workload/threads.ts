/** The threads that callers request: users with several, and one with a single one. */

export interface ThreadName {
  readonly user: string;
  readonly thread: string;
}

export const THREADS: readonly ThreadName[] = [
  { user: "ada", thread: "t1" },
  { user: "ada", thread: "t2" },
  { user: "ada", thread: "t3" },
  { user: "bob", thread: "t1" },
  { user: "bob", thread: "t2" },
  { user: "cy", thread: "t1" },
];

export function ownerName({ user, thread }: ThreadName): string {
  return `${user}/${thread}`;
}
