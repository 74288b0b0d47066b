/**
 * A client in the shape of DeerFlow's `RemoteSandboxBackend`: the same calls, fields, time limits and tolerance. It
 * reads what that one reads, and fails where that one fails.
 */

const CREATE_MS = 30_000;
const DESTROY_MS = 15_000;
const LOOK_MS = 10_000;
const READY_MS = 60_000;
const READY_REQUEST_MS = 5_000;
const READY_PAUSE_MS = 1_000;

export interface DeerFlowMount {
  readonly host_path: string;
  readonly container_path: string;
  readonly read_only?: boolean;
}

export interface DeerFlowSandbox {
  readonly sandbox_id: string;
  readonly sandbox_url: string;
}

export class DeerFlowClient {
  readonly #base: string;
  readonly #headers: Record<string, string>;

  constructor(provisionerUrl: string, apiKey: string) {
    this.#base = provisionerUrl.replace(/\/+$/, "");
    this.#headers = apiKey === "" ? {} : { "X-API-Key": apiKey };
  }

  async create(
    thread: string | null,
    id: string,
    { user = "default", mounts = [] }: { readonly user?: string; readonly mounts?: readonly DeerFlowMount[] } = {},
  ): Promise<DeerFlowSandbox> {
    const payload = {
      sandbox_id: id,
      thread_id: thread,
      user_id: user,
      include_legacy_skills: false,
      provision_lark_cli_runtime: false,
      provision_lark_cli_broker: false,
      ...(mounts.length === 0 ? {} : { extra_mounts: mounts }),
    };
    const response = await this.#call("POST", "/api/sandboxes", CREATE_MS, payload);
    if (!response.ok) throw new Error(`Provisioner create failed: ${response.status} ${await response.text()}`);
    const { sandbox_url } = (await response.json()) as DeerFlowSandbox;
    return { sandbox_id: id, sandbox_url };
  }

  /** Never fails. */
  async destroy(id: string): Promise<void> {
    await this.#call("DELETE", `/api/sandboxes/${id}`, DESTROY_MS).catch(() => undefined);
  }

  /** `Running` is alive, 404 is dead; everything else is unknown and an error. */
  async isAlive(id: string): Promise<boolean> {
    const response = await this.#call("GET", `/api/sandboxes/${id}`, LOOK_MS);
    if (response.status === 404) return false;
    if (!response.ok) throw new Error(`Provisioner look failed: HTTP ${response.status}`);
    return ((await response.json()) as { status?: unknown }).status === "Running";
  }

  async discover(id: string): Promise<DeerFlowSandbox | null> {
    try {
      const response = await this.#call("GET", `/api/sandboxes/${id}`, LOOK_MS);
      if (!response.ok) return null;
      const { sandbox_url } = (await response.json()) as DeerFlowSandbox;
      return { sandbox_id: id, sandbox_url };
    } catch {
      return null;
    }
  }

  async listRunning(): Promise<readonly DeerFlowSandbox[]> {
    try {
      const response = await this.#call("GET", "/api/sandboxes", LOOK_MS);
      if (!response.ok) return [];
      const { sandboxes } = (await response.json()) as { sandboxes: readonly DeerFlowSandbox[] };
      return sandboxes.flatMap(({ sandbox_id, sandbox_url }) =>
        sandbox_id && sandbox_url ? [{ sandbox_id, sandbox_url }] : [],
      );
    } catch {
      return [];
    }
  }

  /** As it waits for a sandbox that was just made. */
  async isReady({ sandbox_url }: DeerFlowSandbox): Promise<boolean> {
    const end = Date.now() + READY_MS;
    while (Date.now() < end) {
      const signal = AbortSignal.timeout(READY_REQUEST_MS);
      const status = await fetch(`${sandbox_url}/v1/sandbox`, { signal }).then(
        (response) => response.status,
        () => 0,
      );
      if (status === 200) return true;
      await new Promise((resolve) => setTimeout(resolve, READY_PAUSE_MS));
    }
    return false;
  }

  #call(method: string, path: string, timeoutMs: number, body?: object): Promise<Response> {
    const json = body === undefined ? {} : { "content-type": "application/json" };
    return fetch(`${this.#base}${path}`, {
      method,
      headers: { ...this.#headers, ...json },
      signal: AbortSignal.timeout(timeoutMs),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  }
}

/** What its `AioSandbox` sends for a command, through the URL and with nothing else. */
export async function run({ sandbox_url }: DeerFlowSandbox, command: string): Promise<string> {
  const response = await fetch(`${sandbox_url}/v1/shell/exec`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ command, no_change_timeout: 600 }),
  });
  if (!response.ok) throw new Error(`exec: HTTP ${response.status} ${await response.text()}`);
  return ((await response.json()) as { data: { output: string } }).data.output;
}

/** The id that DeerFlow derives. */
export async function idOf(user: string, thread: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`${user}:${thread}`));
  return Buffer.from(digest).toString("hex").slice(0, 16);
}
