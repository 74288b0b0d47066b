/**
 * Checks what the remote backend needs: an address, a key that the provisioner takes, and one sandbox from its making
 * to its end. Nobody but the provisioner knows how far its sandboxes are isolated.
 */

import { isSandlotError } from "@sandlot/contract";
import type { Finding } from "../../backend/doctor/finding.ts";
import type { Environment, Trial } from "../../backend/entry.ts";
import { systemWorld } from "../../world/system-world.ts";
import { KEY_VARIABLE, type RemoteConfig } from "./config.ts";
import { ProvisionerClient, Refused } from "./provisioner-client.ts";
import { provisionerUrl, readKey } from "./settings.ts";

const ISOLATION: Finding = {
  name: "isolation",
  status: "warn",
  detail: "the provisioner decides how its sandboxes are isolated, limited and connected; nothing here can check that",
  fix: "run sandlot doctor where the provisioner's sandboxes are made",
};

export async function remoteFindings(
  remote: RemoteConfig,
  { environment, trial }: { readonly environment: Environment; readonly trial: Trial },
): Promise<readonly Finding[]> {
  let url: URL;
  try {
    url = provisionerUrl(remote);
    await readKey(remote, environment);
  } catch (error) {
    if (!isSandlotError(error)) throw error;
    return [{ name: "provisioner", status: "fail", detail: error.message, fix: error.remedy }];
  }
  const answer = await provisionerFinding(remote, url, environment);
  if (answer.status === "fail") return [answer];
  return [answer, await trialFinding(trial), ISOLATION];
}

async function provisionerFinding(remote: RemoteConfig, url: URL, environment: Environment): Promise<Finding> {
  const key = () => readKey(remote, environment);
  const client = new ProvisionerClient({ url, key, sandboxHosts: remote.sandboxHosts, world: systemWorld() });
  const name = "provisioner";
  try {
    const listed = await client.list(new AbortController().signal);
    return { name, status: "ok", detail: `${url.origin} answers and has ${listed.length} sandboxes for this key` };
  } catch (error) {
    const detail = `${url.origin}: ${error instanceof Error ? error.message : String(error)}`;
    const isKey = error instanceof Refused && (error.status === 401 || error.status === 403);
    const fix = isKey
      ? `make a key there (sandlot keys create --scope platform) and put it into remote.keyFile or ${KEY_VARIABLE}`
      : "start the provisioner, or correct remote.url";
    return { name, status: "fail", detail, fix };
  }
}

async function trialFinding(trial: Trial): Promise<Finding> {
  const name = "a sandbox";
  try {
    await trial(async (sandbox) => {
      const { stdout } = await sandbox.exec("echo well");
      if (stdout !== "well\n") throw new Error(`a command printed ${JSON.stringify(stdout.slice(0, 100))}`);
    });
    return { name, status: "ok", detail: "was made, ran a command, and is gone" };
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    const fix = "look at the provisioner's log; for a host that is not its own, add it to remote.sandboxHosts";
    return { name, status: "fail", detail, fix };
  }
}
