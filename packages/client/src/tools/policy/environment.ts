/**
 * Which variables of a host's environment may reach a sandbox. Names that suggest credentials are dropped; deliberately
 * injected variables (secrets of a run) are exempt.
 *
 * It checks names, not values: a password in a variable called GREETING passes.
 */

const NAME_PARTS = ["KEY", "SECRET", "TOKEN", "PASS", "CREDENTIAL", "DSN"];
const NAMES = new Set([
  "DATABASE_URL",
  "DATABASE_URI",
  "REDIS_URL",
  "MONGODB_URI",
  "MONGO_URL",
  "AMQP_URL",
  "RABBITMQ_URL",
  "POSTGRES_URL",
  "POSTGRESQL_URL",
  "MYSQL_URL",
  "CLICKHOUSE_URL",
  "CONNECTION_STRING",
  "CONN_STR",
  "GH_PAT",
  "GITHUB_PAT",
  "MYSQL_PWD",
  "REDISCLI_AUTH",
  "REDIS_AUTH",
  "PGSERVICEFILE",
]);

/** Whether a variable of this name looks like a credential. */
export function isCredentialName(name: string): boolean {
  const upper = name.toUpperCase();
  return NAMES.has(upper) || NAME_PARTS.some((part) => upper.includes(part));
}

/** The variables without those that look like credentials. */
export function scrubEnvironment(environment: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(environment).filter(
      (entry): entry is [string, string] => entry[1] !== undefined && !isCredentialName(entry[0]),
    ),
  );
}
