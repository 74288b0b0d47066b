/**
 * Both generations of MCP clients behind one interface, over a pair of pipes or over HTTP. Each is pinned to its
 * generation, so that a test can name the protocol in use.
 */

import type { Readable, Writable } from "node:stream";
import { Client as ModernClient, StreamableHTTPClientTransport as ModernHttp } from "@modelcontextprotocol/client";
import { Client as LegacyClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as LegacyHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResourceListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import type { ToolReply } from "./tool-suite.ts";

export type McpGeneration = "2025" | "2026";
export const GENERATIONS: readonly McpGeneration[] = ["2025", "2026"];
export const MODERN_VERSION = "2026-07-28";

type Wire =
  | { readonly stdin: Writable; readonly stdout: Readable }
  | { readonly url: URL; readonly headers?: Record<string, string> };

export interface McpConnection extends AsyncDisposable {
  /** The negotiated protocol version. */
  readonly protocolVersion: string | undefined;
  /** The server's id of the connection, over HTTP in the older generation. */
  readonly sessionId: () => string | undefined;
  readonly instructions: string | undefined;
  readonly toolNames: () => Promise<readonly string[]>;
  readonly call: (tool: string, input: Record<string, unknown>, options?: McpCallOptions) => Promise<ToolReply>;
  readonly resources: () => Promise<
    readonly { readonly uri: string; readonly name: string; readonly title?: string | undefined }[]
  >;
  /** In the older generation: called when the server reports changed files. */
  readonly onFilesChanged: (listener: () => void) => void;
  readonly read: (uri: string) => Promise<readonly { readonly text?: string; readonly blob?: string }[]>;
}

export interface McpCallOptions {
  readonly signal?: AbortSignal;
  /** The run that the call is for. */
  readonly run?: string;
  readonly onProgress?: (progress: { readonly progress: number; readonly message?: string }) => void;
}

export async function connectMcp(generation: McpGeneration, wire: Wire): Promise<McpConnection> {
  const about = { name: "test", version: "1.0.0" };
  if (generation === "2025") {
    const client = new LegacyClient(about);
    const transport =
      "url" in wire ? new LegacyHttp(wire.url, requestOf(wire)) : new PipeTransport(wire.stdin, wire.stdout);
    let protocolVersion: string | undefined;
    Object.assign(transport, { setProtocolVersion: (version: string) => (protocolVersion = version) });
    await client.connect(transport as never);
    return connection(client as never, () => protocolVersion, transport);
  }
  const client = new ModernClient(about, { versionNegotiation: { mode: { pin: MODERN_VERSION } } });
  const transport =
    "url" in wire ? new ModernHttp(wire.url, requestOf(wire)) : new PipeTransport(wire.stdin, wire.stdout);
  await client.connect(transport as never);
  return connection(client as never, () => client.getNegotiatedProtocolVersion(), transport);
}

function requestOf({ headers = {} }: { readonly headers?: Record<string, string> }) {
  return { requestInit: { headers } };
}

/** The common part of both clients, as far as it is used here. */
interface EitherClient {
  getInstructions(): string | undefined;
  listTools(): Promise<{ tools: { name: string }[] }>;
  listResources(): Promise<{ resources: { uri: string; name: string; title?: string | undefined }[] }>;
  readResource(params: { uri: string }): Promise<{ contents: { text?: string; blob?: string }[] }>;
  callTool(params: object, ...rest: unknown[]): Promise<CallResult>;
  close(): Promise<void>;
}

interface CallResult {
  readonly content: readonly { type: string; text?: string; mimeType?: string; data?: string }[];
  readonly isError?: boolean;
}

function connection(
  client: EitherClient,
  protocolVersion: () => string | undefined,
  transport: { readonly sessionId?: string | undefined },
): McpConnection {
  const isLegacy = client instanceof LegacyClient;
  return {
    get protocolVersion() {
      return protocolVersion();
    },
    sessionId: () => transport.sessionId,
    instructions: client.getInstructions(),
    toolNames: async () => (await client.listTools()).tools.map(({ name }) => name),
    async call(name, input, { signal, onProgress, run } = {}) {
      const options = { ...(signal ? { signal } : {}), ...(onProgress ? { onprogress: onProgress } : {}) };
      const params = { name, arguments: input, ...(run === undefined ? {} : { _meta: { "sandlot/run": run } }) };
      const result = await (isLegacy ? client.callTool(params, undefined, options) : client.callTool(params, options));
      const texts = result.content.filter(({ type }) => type === "text").map(({ text }) => text ?? "");
      const images = result.content
        .filter(({ type }) => type === "image")
        .map(({ mimeType = "", data = "" }) => ({ mimeType, base64: data }));
      return { text: texts.join("\n"), isError: result.isError ?? false, images };
    },
    resources: async () => (await client.listResources()).resources,
    onFilesChanged(listener) {
      if (client instanceof LegacyClient)
        client.setNotificationHandler(ResourceListChangedNotificationSchema, () => listener());
    },
    read: async (uri) => (await client.readResource({ uri })).contents,
    [Symbol.asyncDispose]: () => client.close(),
  };
}

/** One message per line, as in the stdio binding, over any two streams. */
class PipeTransport {
  readonly sessionId?: string;
  onmessage?: (message: unknown) => void;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  readonly #stdin: Writable;
  readonly #stdout: Readable;
  #rest = "";

  constructor(stdin: Writable, stdout: Readable) {
    this.#stdin = stdin;
    this.#stdout = stdout;
  }

  async start(): Promise<void> {
    this.#stdout.setEncoding("utf8").on("data", (piece: string) => {
      const lines = (this.#rest + piece).split("\n");
      this.#rest = lines.pop() ?? "";
      for (const line of lines) if (line.trim() !== "") this.onmessage?.(JSON.parse(line));
    });
    this.#stdout.on("close", () => this.onclose?.());
  }

  async send(message: unknown): Promise<void> {
    this.#stdin.write(`${JSON.stringify(message)}\n`);
  }

  async close(): Promise<void> {
    this.#stdin.end();
    this.onclose?.();
  }
}
