/** Watching files. A backend that cannot must say so; the other cases do not apply to it. */

import type { FileChange, Sandbox } from "@sandlot/contract";
import { type BackendCase, type BackendStage, withCapability } from "./stage.ts";

const HERE = "/mnt/user-data/workspace";

export const watchingCases: readonly BackendCase[] = withCapability(
  "watch",
  async (sandbox) => {
    for await (const _ of sandbox.files.watch(HERE)) return;
  },
  [
    {
      name: "what is made, changed and removed is told, from ready on",
      run: async (stage) => {
        const { files, seen, until } = await watched(stage);
        await files.write(`${HERE}/file`, "one");
        await until("created or modified", () =>
          seen.some(({ path, type }) => path === `${HERE}/file` && type !== "removed"),
        );
        await files.remove(`${HERE}/file`);
        await until("removed", () => seen.some(({ path, type }) => path === `${HERE}/file` && type === "removed"));
        stage.expect(seen[0]?.type).toBe("ready");
        // The steps of a write are internal to the backend.
        stage.expect(seen.slice(1).filter(({ path }) => path !== `${HERE}/file`)).toEqual([]);
      },
    },
    {
      name: "changes by commands are told as well, in new directories too",
      run: async (stage) => {
        const { sandbox, seen, until } = await watched(stage);
        await sandbox.exec("mkdir -p deep/down && echo x > deep/down/file");
        await until("the new file", () => seen.some(({ path }) => path === `${HERE}/deep/down/file`));
        await sandbox.exec("sleep 0.2; echo y >> deep/down/file");
        await until("its change", () =>
          seen.some(({ path, type }) => path === `${HERE}/deep/down/file` && type === "modified"),
        );
      },
    },
    {
      name: "a signal ends it",
      run: async (stage) => {
        const { controller, ended } = await watched(stage);
        controller.abort(new Error("enough"));
        stage.expect(await ended).toBe("enough");
      },
    },
    {
      name: "watching what is not there is file_not_found",
      run: async (stage) => {
        const { files } = await stage.sandbox();
        const first = async () => {
          for await (const _ of files.watch(`${HERE}/nowhere`)) return;
        };
        await stage.rejects(first(), "file_not_found");
      },
    },
  ],
);

async function watched(stage: BackendStage) {
  const sandbox: Sandbox = await stage.sandbox();
  const controller = new AbortController();
  const seen: FileChange[] = [];
  const read = async () => {
    for await (const change of sandbox.files.watch(HERE, { signal: controller.signal })) seen.push(change);
  };
  const ended = read().then(
    () => "it ended",
    (error: unknown) => (error as Error).message,
  );
  const until = (what: string, check: () => boolean) => stage.eventually(what, check);
  await until("ready", () => seen.length > 0);
  return { sandbox, files: sandbox.files, seen, until, controller, ended };
}
