/**
 * The command palette: pages, threads and settings by their name, with the keyboard. Ctrl-K or Cmd-K opens it, wherever
 * the page is, except inside a terminal, whose shell has a use for Ctrl-K.
 */

import type { ThreadSummary } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import { short } from "./format.ts";
import { useSession } from "./session.tsx";
import { texts } from "./texts.ts";
import { chooseTheme } from "./theme.ts";

const t = texts.palette;
const SHOWN_MAX = 20;
const SECTIONS = ["keys", "configuration", "doctor", "log", "lines", "versions"] as const;

interface Entry {
  readonly id: string;
  readonly name: string;
  readonly about: string;
  run(): void;
}

export function Palette({ onSignOut }: { onSignOut(): void }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey) return;
      if (event.ctrlKey && event.target instanceof Element && event.target.closest(".xterm") !== null) return;
      event.preventDefault();
      setOpen((before) => !before);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return (
    <>
      <button type="button" aria-keyshortcuts="Control+K Meta+K" onClick={() => setOpen(true)}>
        {t.open} <kbd>Ctrl K</kbd>
      </button>
      {isOpen && <Opened onClose={() => setOpen(false)} onSignOut={onSignOut} />}
    </>
  );
}

function Opened({ onClose, onSignOut }: { onClose(): void; onSignOut(): void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const { client } = useSession();
  const threads = useQuery({ queryKey: ["threads"], queryFn: () => client.listThreads() });
  const entries = useEntries(threads.data ?? [], onSignOut);
  const shown = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = ({ name, about }: Entry) => {
      const all = `${name} ${about}`.toLowerCase();
      return words.every((word) => all.includes(word));
    };
    return entries.filter(matches).slice(0, SHOWN_MAX);
  }, [entries, text]);
  useEffect(() => dialog.current?.showModal(), []);
  const chosen = Math.min(at, shown.length - 1);
  const run = (entry: Entry | undefined) => {
    if (entry === undefined) return;
    onClose();
    entry.run();
  };
  const press = (event: React.KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0) {
      event.preventDefault();
      setAt((chosen + step + shown.length) % Math.max(1, shown.length));
    } else if (event.key === "Escape") {
      // A search field would empty itself first.
      event.preventDefault();
      onClose();
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(shown[chosen]);
    }
  };
  return (
    <dialog ref={dialog} className="palette" aria-label={t.title} onClose={onClose}>
      <input
        type="search"
        role="combobox"
        aria-label={t.title}
        aria-expanded="true"
        aria-controls="palette-entries"
        aria-activedescendant={shown[chosen] === undefined ? undefined : `palette-${chosen}`}
        placeholder={t.placeholder}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={press}
      />
      <div role="listbox" id="palette-entries" aria-label={t.title} tabIndex={-1}>
        {shown.map((entry, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are the field's
          <div
            key={entry.id}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === chosen}
            tabIndex={-1}
            onClick={() => run(entry)}
          >
            {entry.name} <span className="soft">{entry.about}</span>
          </div>
        ))}
      </div>
      {shown.length === 0 && <p className="empty">{t.none}</p>}
    </dialog>
  );
}

function useEntries(threads: readonly ThreadSummary[], signOut: () => void): readonly Entry[] {
  const navigate = useNavigate();
  const { isOperator } = useSession();
  return useMemo(() => {
    const page = (to: "/" | "/sandboxes" | "/threads", name: string): Entry => ({
      ...{ id: to, name, about: t.page },
      run: () => void navigate({ to }),
    });
    const section = (one: (typeof SECTIONS)[number]): Entry => ({
      ...{ id: one, name: texts.administration.sections[one] ?? one, about: texts.nav.administration },
      run: () => void navigate({ to: "/administration/$section", params: { section: one } }),
    });
    const theme = (one: "system" | "light" | "dark"): Entry => ({
      ...{ id: `theme-${one}`, name: texts.nav.themes[one], about: texts.nav.theme },
      run: () => chooseTheme(one),
    });
    return [
      ...[page("/", texts.nav.overview), page("/sandboxes", texts.nav.sandboxes), page("/threads", texts.nav.threads)],
      ...(isOperator ? SECTIONS.map(section) : []),
      ...threads.map(
        ({ user, thread }): Entry => ({
          ...{ id: `thread ${user}/${thread}`, name: short(thread, 64), about: t.threadOf(short(user, 64)) },
          run: () => void navigate({ to: "/threads/$user/$thread", params: { user, thread } }),
        }),
      ),
      ...(["light", "dark", "system"] as const).map(theme),
      { id: "sign-out", name: texts.nav.signOut, about: "", run: signOut },
    ];
  }, [navigate, isOperator, threads, signOut]);
}
