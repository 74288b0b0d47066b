/**
 * The scripts themselves, for bash and GNU's tools, which AIO's images have. `P` is the path that each is about.
 */

/** Kind and mode, size, time, inode. */
export const STAT = `stat --printf '%f %s %.9Y %i' -- "$P"`;

/** Says why a file cannot be read, or else its size. */
export const LOOK_AT_FILE = `head -c1 -- "$P" >/dev/null && stat -L --printf %s -- "$P"`;

/** What is in the way of a directory is named as what it is. */
const MAKE = (variable: string) =>
  `said=$(mkdir -p -- "$${variable}" 2>&1) || { echo "\${said/File exists/Not a directory}" >&2; exit 1; }`;

export const MAKE_DIRECTORY = MAKE("P");

/** `TO`: the other path. */
export const RENAME = `
[ -e "$P" ] || [ -L "$P" ] || { echo "$P: No such file or directory" >&2; exit 1; }
mv -fT -- "$P" "$TO"`;

/** `RECURSIVE`: something, or nothing. */
export const REMOVE = `rm \${RECURSIVE:+-r} -d -- "$P"`;

/** `DEPTH`: a number, or nothing. The last word says whether something could not be read. */
export const LIST = `
cd -- "$P" || exit 1
find . -mindepth 1 \${DEPTH:+-maxdepth "$DEPTH"} -printf '%y %m %s %T@ %i %P\\0' 2>/dev/null && echo complete`;

/** Text files of more than `MAX` bytes, below a directory or the file itself; says why there is nothing to look at. */
export const LARGE_TEXTS = `
stat --printf '' -- "$P" || exit 1
find -H "$P" -type f -size "+\${MAX}c" -exec grep -Iq . {} \\; -printf '%p\\0' 2>/dev/null; true`;

/** Links are followed, and what is missing on the way is made. `T` is a name beside the target, and goes in the end. */
const RESOLVE = `
P=$(realpath -m -- "$P"; printf x) && P=\${P%?x}
[ ! -d "$P" ] || { echo "$P: Is a directory" >&2; exit 1; }
D=\${P%/*}; D=\${D:-/}
${MAKE("D")}
T=$D/.sandlot-$ID`;

const REMOVE_STAGED = `trap 'rm -f -- "$T"' EXIT`;

/** `DATA`: content that is small enough for a variable. */
const DECODE = `printf %s "$DATA" | base64 -d >"$T" || exit 1`;

/** `MODE`: octal, or nothing. `WANT`: the version that must be there. `ABSENT`: something, when nothing may be there. */
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

/** Prints where content is to be put before it is placed. */
export const PREPARE = lines(RESOLVE, `printf %s "$T"`);
export const WRITE_SMALL = lines(RESOLVE, REMOVE_STAGED, DECODE, PLACE);
export const WRITE_STAGED = lines(RESOLVE, REMOVE_STAGED, PLACE);
export const APPEND_SMALL = lines(RESOLVE, REMOVE_STAGED, DECODE, APPEND);
export const APPEND_STAGED = lines(RESOLVE, REMOVE_STAGED, APPEND);
export const DISCARD = `rm -f -- "$P"`;
