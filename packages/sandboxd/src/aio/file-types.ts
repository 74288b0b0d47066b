/** Kinds of files by name, as in ripgrep's `--type`. */

import { OperationProblem } from "./answers.ts";

const TYPES: Readonly<Record<string, readonly string[]>> = {
  c: ["*.c", "*.h"],
  config: ["*.cfg", "*.conf", "*.config", "*.ini"],
  cpp: ["*.cc", "*.cpp", "*.cxx", "*.h", "*.hh", "*.hpp"],
  cs: ["*.cs"],
  css: ["*.css", "*.scss"],
  csv: ["*.csv"],
  docker: ["*Dockerfile*"],
  go: ["*.go"],
  h: ["*.h", "*.hh", "*.hpp"],
  html: ["*.ejs", "*.htm", "*.html"],
  java: ["*.java"],
  js: ["*.cjs", "*.js", "*.jsx", "*.mjs", "*.vue"],
  json: ["*.json"],
  jupyter: ["*.ipynb"],
  kotlin: ["*.kt", "*.kts"],
  less: ["*.less"],
  log: ["*.log"],
  lua: ["*.lua"],
  make: ["*.mak", "*.mk", "Makefile", "makefile"],
  md: ["*.markdown", "*.md", "*.mdx"],
  perl: ["*.pl", "*.pm", "*.t"],
  php: ["*.php"],
  protobuf: ["*.proto"],
  py: ["*.py", "*.pyi"],
  r: ["*.R", "*.Rmd", "*.r"],
  ruby: ["*.gemspec", "*.rb", "Gemfile", "Rakefile"],
  rust: ["*.rs"],
  sass: ["*.sass", "*.scss"],
  scala: ["*.sbt", "*.scala"],
  sh: ["*.bash", "*.sh", "*.zsh"],
  sql: ["*.psql", "*.sql"],
  svelte: ["*.svelte"],
  swift: ["*.swift"],
  tex: ["*.bib", "*.cls", "*.sty", "*.tex"],
  toml: ["*.toml"],
  ts: ["*.cts", "*.mts", "*.ts", "*.tsx"],
  txt: ["*.txt"],
  vue: ["*.vue"],
  xml: ["*.xml", "*.xsd", "*.xsl"],
  yaml: ["*.yaml", "*.yml"],
  zig: ["*.zig"],
};

const OTHER_NAMES: Readonly<Record<string, string>> = {
  csharp: "cs",
  dockerfile: "docker",
  markdown: "md",
  python: "py",
  rb: "ruby",
  typescript: "ts",
};

/** `null`: files of every kind. */
export function patternsOf(type: string | null): readonly string[] | null {
  if (type === null) return null;
  const name = Object.hasOwn(OTHER_NAMES, type) ? (OTHER_NAMES[type] ?? type) : type;
  const patterns = Object.hasOwn(TYPES, name) ? TYPES[name] : undefined;
  if (patterns === undefined) throw new OperationProblem(`Unknown file type: ${type}`);
  return patterns;
}
