/**
 * The thread's uploads and outputs as MCP resources: `sandlot://files/mnt/user-data/…`. Listings show the user's files;
 * everything below `/mnt/user-data` can be read.
 */

import { type McpServer, ResourceNotFoundError, ResourceTemplate } from "@modelcontextprotocol/server";
import { TOOL_LIMITS, type ToolBox, textOf } from "@sandlot/client/tools";
import { type FileStat, isSandlotError, SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import { lookup } from "mrmime";

const SCHEME = "sandlot://files";
/** Entries of a listing; tools find more. */
const LISTED_MAX = 1_000;
const LISTED_DEPTH = 8;

export interface ListedFiles {
  /** Whether the list differs from what the client has seen. False for a client that has seen none. */
  haveChanged(signal: AbortSignal): Promise<boolean>;
}

/** For a new, unused thread no sandbox is started just to list nothing. */
export function registerFiles(server: McpServer, toolBox: ToolBox, isNewThread: boolean): ListedFiles {
  let seen: string | null = null;
  const template = new ResourceTemplate(`${SCHEME}{+path}`, {
    list: async ({ mcpReq }) => {
      const resources = isNewThread && toolBox.run.generation === null ? [] : await listed(toolBox, mcpReq.signal);
      seen = namesOf(resources);
      return { resources };
    },
  });
  const config = {
    title: "Files of this conversation",
    description:
      "What the user uploaded (/mnt/user-data/uploads) and what was made for the user (/mnt/user-data/outputs).",
  };
  server.registerResource("files", template, config, async (uri, _variables, { mcpReq }) => ({
    contents: [await contentOf(toolBox, uri, mcpReq.signal)],
  }));
  return {
    async haveChanged(signal) {
      if (seen === null) return false;
      const before = seen;
      seen = namesOf(await listed(toolBox, signal));
      return seen !== before;
    },
  };
}

function namesOf(resources: readonly { readonly uri: string }[]): string {
  return resources.map(({ uri }) => uri).join("\n");
}

async function listed(toolBox: ToolBox, signal: AbortSignal) {
  const listings = await toolBox.run.use(
    ({ files }) =>
      Promise.all(
        ["uploads", "outputs"].map((directory) =>
          files.list(`${WORKSPACE_ROOT}/${directory}`, { depth: LISTED_DEPTH, maxResults: LISTED_MAX }),
        ),
      ),
    { signal, repeatable: true },
  );
  return listings.flatMap(({ entries }) => entries.filter(isListed).map(resourceOf)).slice(0, LISTED_MAX);
}

function isListed({ path, kind }: FileStat): boolean {
  return kind === "file" && !path.split("/").some((part) => part.startsWith("."));
}

function resourceOf({ path, sizeBytes }: FileStat) {
  const mimeType = lookup(path);
  const name = path.slice(WORKSPACE_ROOT.length + 1);
  return {
    uri: SCHEME + path.split("/").map(encodeURIComponent).join("/"),
    name,
    // Clients show the title; without its own, every file would have the template's.
    title: name,
    description: name.startsWith("uploads/") ? "Uploaded by the user." : "Made for the user.",
    size: sizeBytes,
    ...(mimeType === undefined ? {} : { mimeType }),
  };
}

async function contentOf(toolBox: ToolBox, uri: URL, signal: AbortSignal) {
  const path = pathOf(uri);
  const bytes = await toolBox.run
    .use(
      async ({ files }) => {
        const maxBytes = TOOL_LIMITS.readFileMaxBytes;
        const found = await files.read(path, { length: maxBytes + 1 });
        if (found.length > maxBytes)
          throw new SandlotError("file_too_large", { path, sizeBytes: (await files.stat(path)).sizeBytes, maxBytes });
        return found;
      },
      { signal, repeatable: true },
    )
    .catch((error: unknown) => {
      throw isNoFile(error) ? new ResourceNotFoundError(uri.href) : error;
    });
  const mimeType = lookup(path);
  const about = { uri: uri.href, ...(mimeType === undefined ? {} : { mimeType }) };
  const text = textOf(bytes);
  if (text === null) return { ...about, blob: Buffer.from(bytes).toString("base64") };
  return { ...about, text: await toolBox.redacted(text) };
}

/** A directory is no resource either. */
function isNoFile(error: unknown): boolean {
  return isSandlotError(error) && ["file_not_found", "is_a_directory", "not_a_directory"].includes(error.code);
}

/** The path in a URI, if it may be read this way. */
function pathOf(uri: URL): string {
  // `sandlot://files/mnt/x` has the host `files`, so the rest is the path, with `..` already resolved.
  const path = decoded(uri.pathname);
  const isBelow = path.startsWith(`${WORKSPACE_ROOT}/`) && !path.split("/").includes("..") && !path.includes("\0");
  if (uri.host !== "files" || !isBelow) throw new ResourceNotFoundError(uri.href);
  return path;
}

/** Empty, so no valid path, for invalid escapes. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (error instanceof URIError) return "";
    throw error;
  }
}
