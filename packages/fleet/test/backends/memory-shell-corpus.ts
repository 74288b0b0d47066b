// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are shell scripts.
/**
 * Scripts that the shell of the `memory` backend must run exactly as a POSIX shell does: script, standard output, exit
 * code. `memory-shell.test.ts` runs each row on our shell, and on the machine's own shell where there is one. Every
 * script begins in an empty directory.
 */

export type Row = readonly [script: string, stdout: string, exitCode?: number];

export const CORPUS: Readonly<Record<string, readonly Row[]>> = {
  quoting: [
    ["echo a  b", "a b\n"],
    ["echo 'a  b' \"c  d\"", "a  b c  d\n"],
    ["x=1; echo '$x' \"$x\" \\$x", "$x 1 $x\n"],
    ["echo a\\ b 'it'\\''s' \"q\\\"q\"", "a b it's q\"q\n"],
    ['echo "a\\\nb"', "ab\n"],
    ["printf '[%s]' \"\" '' x", "[][][x]"],
    ["echo a#b # comment", "a#b\n"],
    ["echo \"$\" $ 'a'$", "$ $ a$\n"],
  ],
  expansion: [
    ["x='a b  c'; for w in $x; do printf '<%s>' $w; done", "<a><b><c>"],
    ["x='a b'; printf '<%s>' \"$x\"", "<a b>"],
    ["echo $(echo a; echo b) \"$(printf 'x\\ny\\n\\n')\"", "a b x\ny\n"],
    ["x='*'; echo \"$x\" '*'", "* *\n"],
    ["false; echo $?; true; echo $?", "1\n0\n"],
    ["x=$(exit 3); echo $?; x=1; echo $?", "3\n0\n"],
    ["echo $((1 + 2 * 3)) $(( (1+2)*3 )) $((7/2)) $((-7 % 3))", "7 9 3 -1\n"],
    ["i=4; i=$((i+1)); echo $i ${i}x", "5 5x\n"],
    ["printf '%s' 'echo $# $1; for w in \"$@\"; do printf \"<%s>\" \"$w\"; done' > s; sh s 'a b' c", "2 a b\n<a b><c>"],
  ],
  "path names": [
    ["touch b.txt a.txt c.md; echo *.txt *.none '*.txt'", "a.txt b.txt *.none *.txt\n"],
    ["mkdir -p d/e; touch d/x d/e/y .hid; echo d/* */*/y .h*; echo *", "d/e d/x d/e/y .hid\nd\n"],
    ["touch a1 a2 b1; echo [ab]1 a? [!a]*", "a1 b1 a1 a2 b1\n"],
    ["touch 'a b'; for f in *; do echo \"<$f>\"; done", "<a b>\n"],
  ],
  lists: [
    ["true && echo a || echo b; false && echo c || echo d", "a\nd\n"],
    ["! true; echo $?; ! false; echo $?", "1\n0\n"],
    ["echo a; echo b\necho c", "a\nb\nc\n"],
    ["(x=1; cd /; echo $x); echo [$x]", "1\n[]\n"],
    ["{ x=1; echo a; }; echo $x", "a\n1\n"],
    ["echo a |\ncat", "a\n"],
    ["(exit 5); echo $?; exit 6; echo no", "5\n", 6],
    ["sh -c 'exit 9'; echo $?", "9\n"],
  ],
  compound: [
    ["if false; then echo a; elif true; then echo b; else echo c; fi", "b\n"],
    ["if false; then echo a; fi; echo $?", "0\n"],
    ["for i in 1 2 3; do [ $i = 2 ] && continue; echo $i; done", "1\n3\n"],
    ["for i in; do echo no; done; echo done", "done\n"],
    [
      "i=0; while [ $i -lt 3 ]; do i=$((i+1)); echo $i; done; until [ $i -eq 1 ]; do i=$((i-1)); done; echo $i",
      "1\n2\n3\n1\n",
    ],
    [
      "for i in 1 2; do for j in a b; do [ $j = b ] && continue 2; [ $i = 2 ] && break 2; echo $i$j; done; done",
      "1a\n",
    ],
    ["trap 'echo bye $?' EXIT; echo hi; exit 3", "hi\nbye 3\n", 3],
    ["(trap 'echo sub' EXIT; true); sh -c 'trap \"echo inner\" EXIT'; echo end", "sub\ninner\nend\n"],
  ],
  pipes: [
    ["false | true; echo $?; true | false; echo $?", "0\n1\n"],
    ["x=1; echo a | x=2; echo $x", "1\n"],
    ["echo a | { cat; echo b; }", "a\nb\n"],
    ["(echo out; echo err >&2) 2>/dev/null | cat", "out\n"],
  ],
  redirections: [
    ["{ echo o; echo e >&2; } > both 2>&1; cat both", "o\ne\n"],
    ["{ echo o; echo e >&2; } 2>&1 > /dev/null", "e\n"],
    ["{ cat < missing; } 2>/dev/null || echo failed", "failed\n"],
    ["for i in 1 2; do echo $i; done > out; cat out", "1\n2\n"],
    ["echo a > f; echo b >> f; cat < f", "a\nb\n"],
    ["echo a > f; cat f none 2>/dev/null | cat", "a\n"],
  ],
  variables: [
    ["X=1 sh -c 'echo $X'; echo [$X]", "1\n[]\n"],
    ["X=1; sh -c 'echo [$X]'; export X; sh -c 'echo [$X]'", "[]\n[1]\n"],
    ["sh -c 'echo $0 $1 $#' name a b", "name a 2\n"],
    ["printf '#!/bin/sh\\necho run $1\\n' > s; ./s 2>/dev/null; echo $?; chmod +x s; ./s ok", "126\nrun ok\n"],
    ["command -v no-such-thing; echo $?", "127\n"],
    ["echo a > f; { read x; echo [$x]; } < f", "[a]\n"],
  ],
  printing: [
    ["printf '%s\\n' a b c", "a\nb\nc\n"],
    ["seq 3; seq 2 4; seq -s, 1 3", "1\n2\n3\n2\n3\n4\n1,2,3\n"],
    ["printf '%s-%d|%%|%.2s\\n' abc 7 xyz; printf 'a\\tb\\\\\\n'; printf '\\101\\n'", "abc-7|%|xy\na\tb\\\nA\n"],
    ["printf 'x%.0s' 1 2 3", "xxx"],
    ["printf hello | base64; printf aGVsbG8= | base64 -d; printf hello | base64 -w 0", "aGVsbG8=\nhelloaGVsbG8="],
  ],
  test: [
    ["[ a = a ] && [ a != b ] && [ -z '' ] && [ -n x ] && echo ok", "ok\n"],
    ["[ 2 -gt 1 ] && [ 1 -le 1 ] && [ ! 1 -eq 2 ] && test 1 -lt 2 && echo ok", "ok\n"],
    ["touch f; mkdir d; [ -e f ] && [ -f f ] && [ -d d ] && [ ! -d f ] && [ ! -e g ] && echo ok", "ok\n"],
    ["[ \"\" ]; echo $?; [ ]; echo $?; [ '(' = '(' ]; echo $?", "1\n1\n0\n"],
    ["[ 1 -eq x ] 2>/dev/null; echo $?", "2\n"],
  ],
  files: [
    ["mkdir -p a/b/c && touch a/b/f && ls a a/b", "a:\nb\n\na/b:\nc\nf\n"],
    ["mkdir d 2>/dev/null; mkdir d 2>/dev/null; echo $?; mkdir x/y 2>/dev/null; echo $?", "1\n1\n"],
    ["rm none 2>/dev/null; echo $?; rm -f none; echo $?", "1\n0\n"],
    ["ls -A; touch .h v; ls; ls -A; ls -a", "v\n.h\nv\n.\n..\n.h\nv\n"],
    ["ls none 2>/dev/null; echo $?", "2\n"],
    ["ln -s a b; ln -s b a; cat a 2>/dev/null; echo $?", "1\n"],
    ["echo a | tee f g; cat f g; echo b | tee -a f > /dev/null; cat f", "a\na\na\na\nb\n"],
    ["mkdir -p d/e; touch d/f; rm d 2>/dev/null; echo $?; rm -r d; rm -rf d; ls", "1\n"],
    ["mkdir d; ln -s d l; cd l; pwd > /dev/null; cd ..; readlink -f l > p; wc -l < p", "1\n"],
  ],
  text: [
    ["cat none 2>/dev/null; echo $?; echo a > f; cat none f 2>/dev/null; echo $?", "1\na\n1\n"],
    ["seq 5 | head -n 2; seq 5 | tail -n 2; seq 3 | tail -n +2; printf abcdef | head -c 3", "1\n2\n4\n5\n2\n3\nabc"],
    ["printf 'a\\nb\\n' > f; wc -l f; wc -l < f; printf abc | wc -c", "2 f\n2\n3\n"],
    ["echo hello | tr a-z A-Z; printf 'a\\000b' | tr '\\000' x; echo hello | tr el xy", "HELLO\naxbhxyyo\n"],
    [
      "echo abc | rev; echo abcdef | cut -c 2-3; echo abcdef | cut -c 4-; seq 9 | sed -n 3p; seq 9 | sed -n 3,4p",
      "cba\nbc\ndef\n3\n3\n4\n",
    ],
    ["yes | head -n 2; yes a b | head -n 1", "y\ny\na b\n"],
  ],
  grep: [
    ["echo abc | grep -q b; echo $?; echo abc | grep -q x; echo $?; grep x none 2>/dev/null; echo $?", "0\n1\n2\n"],
    ["printf 'ab\\nb\\nc\\n' > f; grep b f; grep -c b f; grep -x b f; grep -cx b f", "ab\nb\n2\nb\n1\n"],
  ],
  find: [
    ["find none 2>/dev/null; echo $?", "1\n"],
    ["mkdir -p d/e; touch d/f; find d -mindepth 1 -delete; ls -A d; find d", "d\n"],
    ["mkdir -p d/e; find d -mindepth 1", "d/e\n"],
  ],
};

/** Unsupported by the shell: it says so, and ends with 2 or 127. `stdout` is the output before that. */
export const UNSUPPORTED: readonly (readonly [script: string, named: string, exitCode: 2 | 127, stdout?: string])[] = [
  ["echo a; awk 1", "awk: command not found", 127, "a\n"],
  ["echo `echo a`", "`…`", 2],
  ["case a in a) echo b;; esac", "case", 2],
  ["f() { echo a; }; f", "functions", 2],
  ["cat <<END\na\nEND", "the redirection <<", 2],
  ["echo a &> f", "the redirection &>", 2],
  ["echo a >&3", "the redirection >&3", 2],
  ["echo a; echo ${x:-b}", "${x:-b}", 2],
  ["echo $'a'", "$'…'", 2],
  ["echo $((1 < 2))", "$((…)) with < 2", 2],
  ["echo $((010 + 1))", "the octal number 010", 2],
  ['echo $(("1" + 1))', "quotes in $((…))", 2],
  ["IFS=:; echo no", "IFS", 2],
  ["echo a; set -e; echo no", "set", 2, "a\n"],
  ["for i; do echo no; done", "for without in", 2],
  ["[[ a = a ]] && echo no", "[[", 2],
  ["trap 'echo no' INT", "trap of anything but EXIT", 2],
  ["[ a = a -a b = b ] && echo no", "test a = a -a b = b", 2],
  ["ls -l", "ls -l", 2],
  ["echo abc | grep 'a.c'", "grep of a pattern: a.c", 2],
  ["echo a | sed s/a/b/", "sed s/a/b/", 2],
  ["printf '%5d' 1", "printf %5", 2],
  ["find . -name x", "find -name x", 2],
  ["chmod u+x f", "chmod u+x", 2],
  ["echo a | tr '[:lower:]' x", "tr [:lower:]", 2],
  ["cd -", "cd -", 2],
  ["sleep 1m", "sleep with anything but seconds", 2],
];
