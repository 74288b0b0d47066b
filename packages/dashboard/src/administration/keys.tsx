/** Keys: made, shown once, revoked. */

import * as AlertDialog from "@radix-ui/react-alert-dialog";
import type { ApiKeyInfo, KeyRequest, NewApiKey } from "@sandlot/client";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { dateTime, moment, short } from "../format.ts";
import { useNow } from "../live.tsx";
import { Confirm, type Question } from "../parts/confirm.tsx";
import { ErrorNotice } from "../parts/notice.tsx";
import { useSession } from "../session.tsx";
import { texts } from "../texts.ts";

const t = texts.administration.keys;
const EXPIRY_DAYS = [1, 7, 30, 90, 365];
const DAY_MS = 86_400_000;
const SCOPES = ["user", "platform", "operator"] as const;

export function Keys() {
  const { client, key: own } = useSession();
  const keys = useQuery({ queryKey: ["keys"], queryFn: () => client.listKeys() });
  const [made, setMade] = useState<NewApiKey | null>(null);
  const [question, setQuestion] = useState<Question | null>(null);
  const revoke = ({ id }: ApiKeyInfo) =>
    setQuestion({
      title: t.revokeTitle(id),
      text: id === own.id ? `${t.revokeText} ${t.revokeOwn}` : t.revokeText,
      button: t.revoke,
      act: () => client.revokeKey(id),
    });
  return (
    <>
      {keys.error !== null && <ErrorNotice error={keys.error} retry={keys.refetch} />}
      <div className="cards">
        <section className="card">
          <h2>{t.create}</h2>
          <NewKey
            create={async (request) => {
              setMade(await client.createKey(request));
              await keys.refetch();
            }}
          />
        </section>
        <section className="card wide scroll">
          <h2>{texts.administration.sections.keys}</h2>
          <KeyTable keys={keys.data ?? []} ownId={own.id} onRevoke={revoke} />
        </section>
      </div>
      <Made made={made} onClose={() => setMade(null)} />
      <Confirm
        question={question}
        onDone={(happened) => {
          setQuestion(null);
          if (happened) void keys.refetch();
        }}
      />
    </>
  );
}

function KeyTable({
  keys,
  ownId,
  onRevoke,
}: {
  readonly keys: readonly ApiKeyInfo[];
  readonly ownId: string;
  onRevoke(key: ApiKeyInfo): void;
}) {
  const { columns } = t;
  return (
    <table className="plain">
      <thead>
        <tr>
          <th>{columns.id}</th>
          <th>{columns.scope}</th>
          <th>{columns.user}</th>
          <th>{columns.label}</th>
          <th>{columns.blueprints}</th>
          <th>{columns.created}</th>
          <th>{columns.expires}</th>
          <th>{columns.actions}</th>
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <tr key={key.id}>
            <td>
              <code>{key.id}</code> {key.id === ownId && <span className="badge info">{t.own}</span>}
            </td>
            <td>{key.scope}</td>
            <td>{key.user ?? "–"}</td>
            <td>{key.label === null ? "–" : short(key.label)}</td>
            <td>{key.blueprints?.join(", ") ?? (key.scope === "user" ? "default" : t.everyBlueprint)}</td>
            <td>{dateTime(key.createdAt)}</td>
            <td>
              <Expiry at={key.expiresAt} />
            </td>
            <td>
              <button
                type="button"
                className="danger"
                aria-label={`${t.revoke} ${key.id}`}
                onClick={() => onRevoke(key)}
              >
                {t.revoke}
              </button>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Expiry({ at }: { readonly at: number | null }) {
  const now = useNow();
  if (at === null) return <>{t.never}</>;
  if (at <= now) return <span className="badge bad">{t.expired}</span>;
  return <span title={dateTime(at)}>{moment(at, now)}</span>;
}

function NewKey({ create }: { create(request: KeyRequest): Promise<void> }) {
  const [scope, setScope] = useState<(typeof SCOPES)[number]>("user");
  const [user, setUser] = useState("");
  const [label, setLabel] = useState("");
  const [blueprints, setBlueprints] = useState("");
  const [days, setDays] = useState("");
  const [error, setError] = useState<unknown>(null);
  const names = blueprints.split(",").map((name) => name.trim());
  const granted = names.filter((name) => name !== "");
  const submit = async () => {
    setError(null);
    try {
      await create({
        scope,
        ...(scope === "user" && { user: user.trim() }),
        ...(label.trim() !== "" && { label: label.trim() }),
        ...(granted.length > 0 && { blueprints: granted }),
        ...(days !== "" && { ttlMs: Number(days) * DAY_MS }),
      });
    } catch (problem) {
      setError(problem);
    }
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      {error !== null && <ErrorNotice error={error} />}
      <div className="field">
        <label htmlFor="scope">{t.scope}</label>
        <select
          id="scope"
          value={scope}
          onChange={(event) => setScope(SCOPES.find((one) => one === event.target.value) ?? "user")}
        >
          {SCOPES.map((one) => (
            <option key={one} value={one}>
              {t.scopes[one]}
            </option>
          ))}
        </select>
      </div>
      {scope === "user" && (
        <div className="field">
          <label htmlFor="key-user">{t.user}</label>
          <input id="key-user" required value={user} onChange={(event) => setUser(event.target.value)} />
        </div>
      )}
      <div className="field">
        <label htmlFor="key-label">{t.label}</label>
        <input id="key-label" maxLength={200} value={label} onChange={(event) => setLabel(event.target.value)} />
      </div>
      <div className="field">
        <label htmlFor="key-blueprints">{t.blueprints}</label>
        <input id="key-blueprints" value={blueprints} onChange={(event) => setBlueprints(event.target.value)} />
      </div>
      <div className="field">
        <label htmlFor="key-days">{t.expires}</label>
        <select id="key-days" value={days} onChange={(event) => setDays(event.target.value)}>
          <option value="">{t.untilRevoked}</option>
          {EXPIRY_DAYS.map((one) => (
            <option key={one} value={one}>
              {t.days(one)}
            </option>
          ))}
        </select>
      </div>
      <button type="submit" className="main">
        {t.create}
      </button>
    </form>
  );
}

function Made({ made, onClose }: { readonly made: NewApiKey | null; onClose(): void }) {
  const [isCopied, setCopied] = useState(false);
  return (
    <AlertDialog.Root open={made !== null} onOpenChange={(open) => !open && onClose()}>
      <AlertDialog.Portal>
        <AlertDialog.Overlay className="overlay" />
        {made !== null && (
          <AlertDialog.Content className="dialog">
            <AlertDialog.Title asChild>
              <h2>{t.made}</h2>
            </AlertDialog.Title>
            <AlertDialog.Description asChild>
              <p>{t.madeText}</p>
            </AlertDialog.Description>
            <code className="secret">{made.key}</code>
            <div className="end">
              <button type="button" onClick={() => navigator.clipboard.writeText(made.key).then(() => setCopied(true))}>
                {isCopied ? texts.copied : texts.copy}
              </button>
              <AlertDialog.Cancel asChild>
                <button type="button" className="main" onClick={() => setCopied(false)}>
                  {texts.close}
                </button>
              </AlertDialog.Cancel>
            </div>
          </AlertDialog.Content>
        )}
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
