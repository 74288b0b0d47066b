/** The kernel's error, as an error of the contract. */

import { constants } from "node:os";
import { SandlotError } from "@sandlot/contract";

/** Node has no name for an exceeded quota, only the number. */
const QUOTA_NUMBER = `Unknown system error -${constants.errno.EDQUOT}`;

/** Any other error is passed on unchanged. */
export function fileError(error: unknown, path: string): unknown {
  if (error instanceof SandlotError || !(error instanceof Error) || !("code" in error)) return error;
  const options = { cause: error };
  switch (error.code) {
    case "ENOENT":
      return new SandlotError("file_not_found", { path }, options);
    case "ENOTDIR":
      return new SandlotError("not_a_directory", { path }, options);
    case "EISDIR":
    case "ERR_FS_EISDIR":
      return new SandlotError("is_a_directory", { path }, options);
    case "EEXIST":
      return new SandlotError("file_exists", { path }, options);
    case "ENOTEMPTY":
      return new SandlotError("directory_not_empty", { path }, options);
    // A mount point cannot be moved or removed, like anything read-only.
    case "EBUSY":
    case "EROFS":
    case "ETXTBSY":
      return new SandlotError("read_only_path", { path }, options);
    case "EACCES":
    case "EPERM":
      return new SandlotError("permission_denied", { path }, options);
    case "ENOSPC":
    case "EDQUOT":
    case QUOTA_NUMBER:
    case "EFBIG":
      return new SandlotError("disk_limit_exceeded", { path }, options);
    case "ELOOP":
      return new SandlotError("invalid_path", { path, problem: "too many symbolic links" }, options);
    case "ENAMETOOLONG":
      return new SandlotError("invalid_path", { path, problem: "it is too long" }, options);
    case "EINVAL":
      return new SandlotError("invalid_path", { path, problem: "the kernel does not accept it" }, options);
    case "ENXIO":
      return new SandlotError("invalid_path", { path, problem: NOT_A_FILE }, options);
    default:
      return error;
  }
}

export const NOT_A_FILE = "it is not a regular file";

/** Runs file work on one path; the kernel's errors become errors about that path. */
export async function aboutPath<T>(path: string, work: () => Promise<T> | T): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw fileError(error, path);
  }
}
