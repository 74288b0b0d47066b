/** The home directory: kept with the workspace, or temporary. */

import { KEPT_HOME, TEMPORARY_HOME } from "@sandlot/contract";
import { ensureBound, settleWorkspace } from "../../backend/workspace-binding.ts";
import type { BackendCase, BackendStage, Key, Made } from "./stage.ts";

const FILE = `${KEPT_HOME}/.config/tool`;
const WRITE = "mkdir -p ~/.config && echo mine > ~/.config/tool";

export const homeCases: readonly BackendCase[] = [
  {
    name: "the home is a directory of the workspace, and everything in the environment names it",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      stage.expect((await sandbox.exec("cd && pwd; echo $HOME")).stdout).toBe(`${KEPT_HOME}\n${KEPT_HOME}\n`);
      stage.expect((await sandbox.files.stat(KEPT_HOME)).kind).toBe("directory");
      const first = ["/.local/bin", "/.cargo/bin", "/go/bin"].map((path) => `${KEPT_HOME}${path}`);
      const path = (await sandbox.exec("echo $PATH")).stdout.trim().split(":");
      stage.expect(path.slice(0, 4)).toEqual([...first, "/opt/env/bin"]);
      stage.expect(path.slice(4)).toContain("/usr/bin");
    },
  },
  {
    name: "it survives the end of its sandbox, and its death",
    run: async (stage) => {
      const key = stage.newKey();
      const first = await stage.make(key);
      await (await stage.attach(first.target)).sandbox.exec(WRITE);
      await stage.destroy(first);
      const second = await stage.make(key);
      const { sandbox } = await stage.attach(second.target);
      stage.expect((await sandbox.exec("cat ~/.config/tool; echo more >> ~/.config/tool")).stdout).toBe("mine\n");
      await stage.kill(second);
      await stage.destroy(second);
      stage.expect(await (await stage.sandbox(key)).files.readText(FILE)).toBe("mine\nmore\n");
    },
  },
  {
    name: "it moves into a blank and home again with the workspace",
    run: async (stage) => {
      const key = stage.newKey();
      await stage.homeWith(key, FILE, "moved");
      const { made, sandbox, spot } = await bound(stage, key);
      stage.expect((await sandbox.exec("cat ~/.config/tool && echo back > ~/.config/tool")).stdout).toBe("moved");
      await stage.destroy(made);
      await settleWorkspace(stage.backend.workspaces, spot, false);
      stage.expect(await (await stage.sandbox(key)).files.readText(FILE)).toBe("back\n");
    },
  },
  {
    name: "a blank that gets a new thread has a home from then on",
    run: async (stage) => {
      const { made, sandbox, spot } = await bound(stage, stage.newKey());
      stage.expect((await sandbox.exec(`${WRITE} && cat ${FILE}`)).stdout).toBe("mine\n");
      await stage.destroy(made);
      await settleWorkspace(stage.backend.workspaces, spot, true);
    },
  },
  {
    name: "a removed home is made again for the next sandbox",
    run: async (stage) => {
      const key = stage.newKey();
      const first = await stage.make(key);
      const { sandbox } = await stage.attach(first.target);
      stage.expect((await sandbox.exec(`rm -r ${KEPT_HOME}`)).exitCode).toBe(0);
      await stage.destroy(first);
      const next = await stage.sandbox(key);
      stage.expect((await next.exec(`${WRITE} && cat ${FILE}`)).stdout).toBe("mine\n");
    },
  },
  {
    name: "a purge removes it",
    run: async (stage) => {
      const key = stage.newKey();
      const made = await stage.make(key);
      await (await stage.attach(made.target)).sandbox.exec(WRITE);
      await stage.destroy(made);
      await settleWorkspace(stage.backend.workspaces, stage.spot(made, key), true);
      await stage.rejects((await stage.sandbox(key)).files.stat(FILE), "file_not_found");
    },
  },
  {
    name: "emptying it removes all of it and nothing else, and once more is fine",
    run: async (stage) => {
      const key = stage.newKey();
      const made = await stage.make(key);
      const { sandbox } = await stage.attach(made.target);
      await sandbox.exec(`${WRITE}; echo note > note; mkdir -p ~/a/b; echo x > ~/a/b/c`);
      await stage.destroy(made);
      for (let times = 1; times <= 2; times++)
        await settleWorkspace(stage.backend.workspaces, stage.spot(made, key), false, true);
      const next = await stage.sandbox(key);
      stage.expect((await next.files.list(KEPT_HOME)).entries).toEqual([]);
      stage.expect((await next.exec(`cat note; ${WRITE} && cat ${FILE}`)).stdout).toBe("note\nmine\n");
    },
  },
  {
    name: "emptying it brings the workspace home from its slot first",
    run: async (stage) => {
      const key = stage.newKey();
      const { made, sandbox, spot } = await bound(stage, key);
      await sandbox.exec(`${WRITE}; echo note > note`);
      await stage.destroy(made);
      await settleWorkspace(stage.backend.workspaces, spot, false, true);
      const next = await stage.sandbox(key);
      await stage.rejects(next.files.stat(FILE), "file_not_found");
      stage.expect(await next.files.readText("/mnt/user-data/workspace/note")).toBe("note\n");
    },
  },
  {
    name: "an older generation empties nothing",
    run: async (stage) => {
      const key = stage.newKey();
      const first = await stage.make(key);
      await stage.destroy(first);
      const second = await stage.make(key);
      const { sandbox } = await stage.attach(second.target);
      await sandbox.exec(WRITE);
      await settleWorkspace(stage.backend.workspaces, stage.spot(first, key), false, true);
      const empty = stage.backend.workspaces.emptyHome?.(stage.spot(first, key)) ?? Promise.resolve();
      await stage.rejects(empty, "stale_generation");
      stage.expect(await sandbox.files.readText(FILE)).toBe("mine\n");
    },
  },
  {
    name: "lists and searches skip it, unless a call names it",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { files } = sandbox;
      await sandbox.exec(`${WRITE}; echo mine > own; mkdir -p .home && echo mine > .home/project`);
      const own = ["/mnt/user-data/workspace/.home/project", "/mnt/user-data/workspace/own"];
      const listed = (await files.list("/mnt/user-data", { depth: 4 })).entries.map(({ path }) => path);
      stage.expect(listed.filter((path) => path.startsWith(KEPT_HOME))).toEqual([]);
      stage.expect(listed).toContain("/mnt/user-data/workspace/.home/project");
      stage.expect((await files.list(KEPT_HOME, { depth: 2 })).entries.map(({ path }) => path)).toContain(FILE);
      stage.expect((await files.glob("/mnt/user-data", "**/tool")).paths).toEqual([]);
      stage.expect((await files.glob("/mnt/user-data", ".home/**/tool")).paths).toEqual([FILE]);
      stage.expect((await files.glob(KEPT_HOME, "**/tool")).paths).toEqual([FILE]);
      for (const pattern of ["mine", "mi(?=ne)"]) {
        const lines = async (path: string, glob?: string) =>
          (await files.grep(path, pattern, glob === undefined ? {} : { glob })).matches.map((match) => match.path);
        stage.expect(await lines("/mnt/user-data")).toEqual(own);
        stage.expect(await lines(KEPT_HOME)).toEqual([FILE]);
        stage.expect(await lines("/mnt/user-data", ".home/**")).toEqual([FILE]);
      }
    },
  },
  {
    name: "a temporary home ends with its sandbox, and the workspace stays",
    run: async (stage) => {
      const key = stage.newKey();
      const blueprint = { ...stage.blueprint, home: "temporary" } as const;
      const first = await stage.make(key, { blueprint });
      const { sandbox } = await stage.attach(first.target);
      const { stdout } = await sandbox.exec(
        `${WRITE}; echo note > note; cd && pwd; cat ${TEMPORARY_HOME}/.config/tool`,
      );
      stage.expect(stdout).toBe(`${TEMPORARY_HOME}\nmine\n`);
      await stage.rejects(sandbox.files.stat(FILE), "file_not_found");
      await stage.destroy(first);
      const next = await stage.make(key, { blueprint });
      const { files } = (await stage.attach(next.target)).sandbox;
      await stage.rejects(files.stat(`${TEMPORARY_HOME}/.config`), "file_not_found");
      stage.expect(await files.readText("/mnt/user-data/workspace/note")).toBe("note\n");
    },
  },
];

/** A blank that got the thread, with its workspace, or a new one. */
async function bound(stage: BackendStage, key: Key) {
  const blank = await stage.make(null);
  const generation = stage.nextGeneration();
  const marker = stage.marker(blank, key, generation);
  await stage.backend.markers.write(marker);
  const spot = stage.spot(blank, key, generation);
  await ensureBound(stage.backend.workspaces, spot);
  const { target } = blank;
  const next = { ...target, generation, token: marker.token };
  await stage.backend.rebind(next, target, stage.signal);
  const made: Made = { ...blank, target: next };
  return { made, spot, sandbox: (await stage.attach(next)).sandbox };
}
