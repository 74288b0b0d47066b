/** The store of a stage: its section of the configuration, and the faults that its kind can have. */

import { join } from "node:path";
import type { SmallDisk } from "../../../packages/fleet/test/support/small-disk.ts";

export interface StageStore {
  readonly name: string;
  start(): Promise<void>;
  stop(): Promise<void>;
  /** The section `store` of a gateway's configuration. Another name is another store in the same place. */
  section(home: string, gateway: number, name: string): Readonly<Record<string, unknown>>;
  /** A server of its own, which can be killed, stopped and rewound; `null`: a file. */
  readonly server: StoreServer | null;
}

export interface StoreServer {
  kill(): Promise<void>;
  /** Starts it again with what it has kept. */
  restart(): Promise<void>;
  pause(): void;
  resume(): void;
  /** The connections of one gateway stand still. */
  cut(): void;
  mend(): void;
  /** Kills it, and starts it with the data of `byMs` before. */
  rewind(byMs: number): Promise<void>;
  /** Before the start: its data get a disk of their own. */
  useSmallDisk(): void;
  readonly disk: SmallDisk;
  readonly isRunning: boolean;
  /** When it was killed by `rewind`, on the monotonic clock. */
  readonly rewoundAt: number;
}

export function sqliteStore(): StageStore {
  return {
    name: "sqlite",
    start: async () => {},
    stop: async () => {},
    section: (home, _gateway, name) => ({ type: "sqlite", path: join(home, `${name}.db`) }),
    server: null,
  };
}
