/**
 * The base of the URLs that a provisioner's client gets: the previews' listener, under a name that reaches it.
 *
 *   configured                     as it is
 *   previews have a domain         the thread's name below it, as for other AIO URLs
 *   otherwise                      the host name of the request: what reached this gateway reaches its previews, too
 */

import { AIO_TUNNEL_PORT } from "@sandlot/contract";
import type { FastifyRequest } from "fastify";
import type { GatewaySettings } from "../../config/gateway-settings.ts";
import type { PreviewLinks } from "../previews/links.ts";
import type { ProvisionedSandbox } from "./provisioned-sandboxes.ts";

export function sandboxBase(
  { provisioner, preview }: Pick<GatewaySettings, "provisioner" | "preview">,
  links: Pick<PreviewLinks, "labelOf">,
  previewAddress: (label: string) => string,
  record: ProvisionedSandbox,
  { headers }: Pick<FastifyRequest, "headers">,
): string {
  if (provisioner.sandboxUrl !== undefined) return provisioner.sandboxUrl.replace(/\/+$/, "");
  const address = previewAddress(links.labelOf(record, AIO_TUNNEL_PORT));
  // The guard against web pages has checked the name.
  const asked = URL.parse(`http://${headers.host ?? ""}`);
  if (preview.domain !== "localhost" || asked === null) return address;
  const base = new URL(address);
  base.hostname = asked.hostname;
  return base.origin;
}
