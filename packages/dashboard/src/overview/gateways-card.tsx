/** The gateways of the fleet: when each was last heard of, and how its host is. One that is silent is shown as missing. */

import type { DashboardFleet, DashboardOverview } from "@sandlot/client";
import { ageOf, bytes, moment, short } from "../format.ts";
import { useNow } from "../live.tsx";
import { texts } from "../texts.ts";

const t = texts.overview;
type Gateway = DashboardFleet["gateways"][number];

export function GatewaysCard({ gateways }: { readonly gateways: readonly Gateway[] }) {
  const columns = t.gatewayColumns;
  return (
    <section className="card wide">
      <h2 id="gateways">{t.gateways}</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached with the keyboard */}
      <section className="scroll" tabIndex={0} aria-labelledby="gateways">
        <table className="plain">
          <thead>
            <tr>
              <th>{columns.instance}</th>
              <th>{columns.address}</th>
              <th>{columns.beat}</th>
              <th>{columns.version}</th>
              <th>{columns.since}</th>
              <th className="number">{columns.queued}</th>
              <th className="number">{columns.commands}</th>
              <th>{columns.memory}</th>
              <th>{columns.disk}</th>
              <th className="number">{columns.process}</th>
              <th className="number">{columns.streams}</th>
            </tr>
          </thead>
          <tbody>
            {gateways.map((gateway) => (
              <Row key={gateway.instance} gateway={gateway} />
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}

function Row({ gateway: { instance, address, isSelf, lastBeatAt, overview, problem } }: { readonly gateway: Gateway }) {
  const now = useNow();
  return (
    <tr>
      <td>
        <code>{short(instance, 40)}</code> {isSelf && <span className="badge info">{t.self}</span>}
      </td>
      <td>{address === null ? <span className="soft">{t.noAddress}</span> : short(address, 100)}</td>
      <td>{isSelf || lastBeatAt === null ? "–" : moment(lastBeatAt, now)}</td>
      {overview === null ? (
        <td colSpan={8}>
          <span className="badge warn">{t.missing}</span> {short(problem ?? "", 300)}
        </td>
      ) : (
        <>
          <td>{short(overview.version, 30)}</td>
          <td>{ageOf(overview.startedAt, now)}</td>
          <td className="number">{overview.queued}</td>
          <td className="number">{overview.execs.perSecond.toFixed(1)}</td>
          <td>
            <Usage usage={overview.memory} name={t.gatewayColumns.memory} />
          </td>
          <td>
            <Usage usage={overview.disk} name={t.gatewayColumns.disk} />
          </td>
          <td className="number">{bytes(overview.processBytes)}</td>
          <td className="number">{overview.openStreams}</td>
        </>
      )}
    </tr>
  );
}

function Usage({ usage, name }: { readonly usage: DashboardOverview["memory"]; readonly name: string }) {
  if (usage === null) return <>{texts.unknown}</>;
  const text = t.of(bytes(usage.usedBytes), bytes(usage.totalBytes));
  return (
    <>
      {text}
      <meter
        min={0}
        max={usage.totalBytes}
        high={usage.totalBytes * 0.9}
        value={usage.usedBytes}
        aria-label={`${name}: ${text}`}
      />
    </>
  );
}
