/** The files of a drop, also those in dropped folders, with their path below the place where they were dropped. */

export interface ChosenFile {
  readonly path: string;
  readonly file: File;
}

/** A folder with more is refused whole: half of it would look like all. */
const FILES_MAX = 5_000;

export function chosenFiles(list: FileList | null): readonly ChosenFile[] {
  return [...(list ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

/** Has to be called in the event itself: the browser forgets the items after it. */
export function droppedFiles({ items, files }: DataTransfer): Promise<readonly ChosenFile[]> {
  const entries = [...items].map((item) => item.webkitGetAsEntry());
  if (entries.some((entry) => entry?.isDirectory === true)) return walk(entries.filter((entry) => entry !== null));
  return Promise.resolve(chosenFiles(files));
}

async function walk(entries: readonly FileSystemEntry[]): Promise<readonly ChosenFile[]> {
  const found: ChosenFile[] = [];
  const open = [...entries];
  for (let entry = open.shift(); entry !== undefined; entry = open.shift()) {
    const path = entry.fullPath.replace(/^\//, "");
    if (entry.isFile) found.push({ path, file: await fileOf(entry as FileSystemFileEntry) });
    else open.push(...(await entriesOf(entry as FileSystemDirectoryEntry)));
    if (found.length > FILES_MAX) throw new Error(`There are more than ${FILES_MAX} files in that folder.`);
  }
  return found;
}

function fileOf(entry: FileSystemFileEntry): Promise<File> {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}

/** A reader gives them in parts, and an empty one at the end. */
async function entriesOf(entry: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = entry.createReader();
  const all: FileSystemEntry[] = [];
  while (true) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (part.length === 0) return all;
    all.push(...part);
  }
}
