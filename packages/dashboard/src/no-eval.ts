/** Before any schema is made: it would try whether it may make functions from text, which the policy refuses and reports. */

const shared = globalThis as { __zod_globalConfig?: { jitless?: boolean } };
shared.__zod_globalConfig ??= {};
shared.__zod_globalConfig.jitless = true;

export {};
