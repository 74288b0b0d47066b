/** The thread that `-t` names. Commander's own check would come before it reports a mistyped option. */

import { SandlotError } from "@sandlot/contract";

export function namedThread({ thread }: { readonly thread?: string | undefined }): string {
  if (thread !== undefined) return thread;
  throw new SandlotError("invalid_request", {
    field: "command line",
    problem: "name the thread with -t, such as -t t1",
  });
}
