/**
 * Requests to the AIO API behind a provisioner's URL. The URL is the only credential: where it is refused, or leads
 * nowhere any more, there is no server to talk to, and the provisioner says whether the sandbox lives.
 */

import type { IncomingMessage } from "node:http";
import { type AioCall, AioWire, NoAnswer } from "../../compat/aio/wire/wire.ts";

const NOWHERE: ReadonlySet<number> = new Set([401, 403, 410]);

export class RemoteWire extends AioWire {
  constructor(url: string) {
    super({ address: { url }, apiKey: null });
  }

  override async open(call: AioCall): Promise<IncomingMessage> {
    const response = await super.open(call);
    if (!NOWHERE.has(response.statusCode ?? 0)) return response;
    response.destroy();
    throw new NoAnswer(`its URL is answered with ${response.statusCode}`);
  }
}
