/** The scripts' texts, for bash and GNU's tools, which AIO's images have. `P` is the path of each. */

/** Kind and mode, size, time, inode. */
export const STAT = `stat --printf '%f %s %.9Y %i' -- "$P"`;

/** Prints why a file cannot be read, or else its size. */
export const LOOK_AT_FILE = `head -c1 -- "$P" >/dev/null && stat -L --printf %s -- "$P"`;

/** An obstacle in the path of a directory gets its own error. */
const MAKE = (variable: string) =>
  `said=$(mkdir -p -- "$${variable}" 2>&1) || { echo "\${said/File exists/Not a directory}" >&2; exit 1; }`;

export const MAKE_DIRECTORY = MAKE("P");

/** `TO`: the other path. */
export const RENAME = `
[ -e "$P" ] || [ -L "$P" ] || { echo "$P: No such file or directory" >&2; exit 1; }
mv -fT -- "$P" "$TO"`;

/** `RECURSIVE`: non-empty, or empty. */
export const REMOVE = `rm \${RECURSIVE:+-r} -d -- "$P"`;

/** `DEPTH`: a number, or empty. The last word says whether something was unreadable. */
export const LIST = `
cd -- "$P" || exit 1
find . -mindepth 1 \${DEPTH:+-maxdepth "$DEPTH"} -printf '%y %m %s %T@ %i %P\\0' 2>/dev/null && echo complete`;

/** Text files of more than `MAX` bytes, below a directory or the file itself; prints why there is nothing to search. */
export const LARGE_TEXTS = `
stat --printf '' -- "$P" || exit 1
find -H "$P" -type f -size "+\${MAX}c" -exec grep -Iq . {} \\; -printf '%p\\0' 2>/dev/null; true`;

/** Follows links, and creates missing directories. `T` is a temporary name beside the target, removed in the end. */
const RESOLVE = `
P=$(realpath -m -- "$P"; printf x) && P=\${P%?x}
[ ! -d "$P" ] || { echo "$P: Is a directory" >&2; exit 1; }
D=\${P%/*}; D=\${D:-/}
${MAKE("D")}
T=$D/.sandlot-$ID`;

const REMOVE_STAGED = `trap 'rm -f -- "$T"' EXIT`;

/** `DATA`: content that is small enough for a variable. */
const DECODE = `printf %s "$DATA" | base64 -d >"$T" || exit 1`;

/** `MODE`: octal, or empty. `WANT`: the required version. `ABSENT`: non-empty, when no file may exist. */
const PLACE = `
version() { stat --printf '%i.%.9Y.%s' -- "$P" 2>/dev/null; }
changed() { echo "sandlot-version:$(version)" >&2; exit 1; }
[ -z "$WANT" ] || [ "$(version)" = "$WANT" ] || changed
if [ -n "$MODE" ]; then chmod -- "$MODE" "$T"
elif [ -e "$P" ]; then chmod --reference="$P" -- "$T" && chmod ug-s -- "$T"
else chmod 644 -- "$T"; fi || exit 1
if [ -n "$ABSENT" ]; then ln -T -- "$T" "$P" 2>/dev/null || changed
else mv -fT -- "$T" "$P"; fi`;

const APPEND = `cat -- "$T" >>"$P"`;

const lines = (...parts: readonly string[]) => parts.join("\n");

/** Prints the path for content before it is placed. */
export const PREPARE = lines(RESOLVE, `printf %s "$T"`);
export const WRITE_SMALL = lines(RESOLVE, REMOVE_STAGED, DECODE, PLACE);
export const WRITE_STAGED = lines(RESOLVE, REMOVE_STAGED, PLACE);
export const APPEND_SMALL = lines(RESOLVE, REMOVE_STAGED, DECODE, APPEND);
export const APPEND_STAGED = lines(RESOLVE, REMOVE_STAGED, APPEND);
export const DISCARD = `rm -f -- "$P"`;
