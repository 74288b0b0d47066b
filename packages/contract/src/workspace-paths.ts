/** Relative paths: commands start in the workspace, so paths are relative to it. */

import { DEFAULT_CWD, type SandboxFiles } from "./sandbox.ts";

/** The absolute path that a caller means. An invalid path stays unchanged; a later check refuses it. */
export function workspacePath(path: string): string {
  return typeof path !== "string" || path === "" || path.startsWith("/") ? path : `${DEFAULT_CWD}/${path}`;
}

/** The same files, with relative paths below the workspace. */
export function withWorkspacePaths(files: SandboxFiles): SandboxFiles {
  const at = workspacePath;
  return {
    read: (path, range) => files.read(at(path), range),
    readText: (path, options) => files.readText(at(path), options),
    download: (path, range) => files.download(at(path), range),
    write: (path, content, options) => files.write(at(path), content, options),
    upload: (path, content, options) => files.upload(at(path), content, options),
    append: (path, content) => files.append(at(path), content),
    mkdir: (path) => files.mkdir(at(path)),
    rename: (from, to) => files.rename(at(from), at(to)),
    remove: (path, options) => files.remove(at(path), options),
    stat: (path) => files.stat(at(path)),
    list: (path, options) => files.list(at(path), options),
    glob: (path, pattern, options) => files.glob(at(path), pattern, options),
    grep: (path, pattern, options) => files.grep(at(path), pattern, options),
    watch: (path, options) => files.watch(at(path), options),
  };
}
