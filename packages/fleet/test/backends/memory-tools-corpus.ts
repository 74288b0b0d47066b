/**
 * What the commands of the `memory` backend's shell must do exactly as their models do. Used like
 * `memory-shell-corpus.ts`.
 */

import type { Row } from "./memory-shell-corpus.ts";

export const TOOLS_CORPUS: Readonly<Record<string, readonly Row[]>> = {
  files: [
    ["mkdir -p a/b/c && touch a/b/f && ls a a/b", "a:\nb\n\na/b:\nc\nf\n"],
    ["mkdir d 2>/dev/null; mkdir d 2>/dev/null; echo $?; mkdir x/y 2>/dev/null; echo $?", "1\n1\n"],
    ["mkdir -p d/e; touch d/f; rm d 2>/dev/null; echo $?; rmdir d 2>/dev/null; echo $?; rm -r d; ls", "1\n1\n"],
    ["rm none 2>/dev/null; echo $?; rm -f none; echo $?", "1\n0\n"],
    ["echo x > a; mv a b; cat b; mkdir d; mv b d; ls d; mv d e; ls e", "x\nb\nb\n"],
    [
      "echo 1 > a; echo 2 > b; cp a b; cat b; mkdir d; cp a b d; ls d; cp d e 2>/dev/null; echo $?; cp -r d e; ls e",
      "1\na\nb\n1\na\nb\n",
    ],
    ["mkdir -p s/t d; touch s/t/f; cp -r s d; find d | sort", "d\nd/s\nd/s/t\nd/s/t/f\n"],
    ["ls -A; touch .h v; ls; ls -A; ls -a", "v\n.h\nv\n.\n..\n.h\nv\n"],
    ["ls none 2>/dev/null; echo $?", "2\n"],
    ["echo x > t; ln -s t l; cat l; readlink l; echo y > l; cat t; rm l; cat t", "x\nt\ny\ny\n"],
    ["ln -s a b; ln -s b a; cat a 2>/dev/null; echo $?", "1\n"],
    ["touch f; chmod 640 f; stat -c %a f; chmod u+x,g-r,o=r f; stat -c %a f", "640\n704\n"],
    ["printf 12345 > f; stat -c '%s %n' f", "5 f\n"],
    ["echo a | tee f g; cat f g; echo b | tee -a f > /dev/null; cat f", "a\na\na\na\nb\n"],
  ],
  text: [
    [
      "printf '1\\n2\\n3\\n4' > f; head -n 2 f; tail -n 2 f; echo; tail -n +3 f; echo; head -c 3 f; tail -c 2 f",
      "1\n2\n3\n4\n3\n4\n1\n2\n4",
    ],
    [
      "printf 'b\\na\\nc\\na\\n' | sort; printf '10\\n9\\n' | sort -n; printf 'a\\nb\\na\\n' | sort -u; printf '1\\n2\\n' | sort -r",
      "a\na\nb\nc\n9\n10\na\nb\n2\n1\n",
    ],
    ["printf 'x 2\\ny 1\\n' | sort -k 2; printf 'x:2\\ny:1\\n' | sort -t : -k 2 -n", "y 1\nx 2\ny:1\nx:2\n"],
    ["printf 'a\\na\\nb\\n' | uniq; printf 'a\\na\\nb\\n' | uniq -d; printf 'a\\na\\nb\\n' | uniq -u", "a\nb\na\nb\n"],
    [
      "printf 'a:b:c\\n' | cut -d : -f 2; printf 'a:b:c\\n' | cut -d: -f1,3; echo hello | cut -c 2-4; echo hello | cut -c-2",
      "b\na:c\nell\nhe\n",
    ],
    [
      "echo hello | tr l L; echo hello | tr -d l; echo aabbcc | tr -s b; echo abc | tr a-c A-C; echo 'a1b2' | tr -cd '[:digit:]'",
      "heLLo\nheo\naabcc\nABC\n12",
    ],
    [
      "printf 'a b\\nc\\n' | wc -l | tr -d ' '; printf 'a b\\nc\\n' | wc -w | tr -d ' '; printf 'a b\\nc\\n' | wc -c | tr -d ' '",
      "2\n3\n6\n",
    ],
    ["printf 'b\\na\\n' | cat -n | tr -d ' '; printf '1\\n2\\n' | tac", "1\tb\n2\ta\n2\n1\n"],
    ["cat none 2>/dev/null; echo $?; echo a > f; cat none f 2>/dev/null; echo $?", "1\na\n1\n"],
  ],
  grep: [
    [
      "printf 'foo\\nbar\\nFoo\\n' > f; grep foo f; grep -i foo f; grep -v foo f; grep -c o f; grep -n bar f",
      "foo\nfoo\nFoo\nbar\nFoo\n2\n2:bar\n",
    ],
    [
      "printf 'a.b\\naxb\\n' | grep a.b; printf 'a.b\\naxb\\n' | grep -F a.b; printf 'a+\\naa\\n' | grep 'a+'; printf 'a+\\naa\\n' | grep -E 'a+$'",
      "a.b\naxb\na.b\na+\naa\n",
    ],
    ["echo abc | grep -q b; echo $?; echo abc | grep -q x; echo $?; grep x none 2>/dev/null; echo $?", "0\n1\n2\n"],
    [
      "echo x > a; echo x > b; grep x a b; grep -h x a b; grep -l x a b; mkdir d; echo x > d/c; grep -r x d",
      "a:x\nb:x\nx\nx\na\nb\nd/c:x\n",
    ],
    [
      "echo 'foo123bar4' | grep -o '[0-9]*' | head -n 1; echo 'foobar foo' | grep -ow foo; printf 'ab\\nabc\\n' | grep -x ab",
      "123\nfoo\nab\n",
    ],
    [
      "printf 'aa\\nab\\n' | grep '\\(a\\)\\1'; printf 'ac\\nbc\\n' | grep -E '^(a|b)c$'; echo 'x[1]' | grep '\\[1\\]'",
      "aa\nac\nbc\nx[1]\n",
    ],
  ],
  sed: [
    [
      "echo hello | sed 's/l/L/'; echo hello | sed 's/l/L/g'; echo hello | sed 's/l/L/2'; echo /a/b | sed 's|/|-|g'",
      "heLlo\nheLLo\nhelLo\n-a-b\n",
    ],
    [
      "echo 'john smith' | sed 's/\\(.*\\) \\(.*\\)/\\2 \\1/'; echo ab | sed -E 's/(a)(b)/\\2\\1/'; echo abc | sed 's/b/[&]/'",
      "smith john\nba\na[b]c\n",
    ],
    [
      "printf '1\\n2\\n3\\n' > f; sed -n 2p f; sed 2d f; sed '$d' f; sed -n '/2/,$p' f; sed 1q f; sed -n '2,3p' f; sed '2!d' f",
      "2\n1\n3\n1\n2\n2\n3\n1\n2\n3\n2\n",
    ],
    [
      "printf 'a\\nb\\n' > f; sed -i 's/a/x/' f; cat f; sed -e 's/x/y/' -e 's/y/z/' f; sed 's/b/B/;s/B/C/' f",
      "x\nb\nz\nb\nx\nC\n",
    ],
  ],
  find: [
    [
      "mkdir -p d/e; touch d/a.txt d/e/b.txt d/c.md; find d -name '*.txt' | sort; find d -type d | sort; find d -maxdepth 1 -type f | sort",
      "d/a.txt\nd/e/b.txt\nd\nd/e\nd/a.txt\nd/c.md\n",
    ],
    [
      "touch a b; find . -name a -o -name b | sort; find . ! -name a -type f; find . -name a -exec echo got {} \\;; find . -name a -delete; ls",
      "./a\n./b\n./b\ngot ./a\nb\n",
    ],
    ["find none 2>/dev/null; echo $?", "1\n"],
  ],
  xargs: [
    [
      "printf 'a b\\nc\\n' | xargs echo; printf 'a b c' | xargs -n 2 echo; printf 'a\\nb\\n' | xargs -I {} echo '<{}>'",
      "a b c\na b\nc\n<a>\n<b>\n",
    ],
    [
      "printf 'x y\\0z\\0' | xargs -0 -n 1 echo; echo | xargs -r echo no; printf 'a\\n' | xargs false; echo $?",
      "x y\nz\n123\n",
    ],
    ["timeout 0.05 sleep 5; echo $?; timeout 5 echo fine", "124\nfine\n"],
  ],
};
