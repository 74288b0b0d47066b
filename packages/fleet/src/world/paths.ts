/** Whether `path` is `directory` or lies in it. Both are absolute and normal. */
export function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(directory === "/" ? "/" : `${directory}/`);
}
