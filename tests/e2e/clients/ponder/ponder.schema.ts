import { onchainTable } from "ponder";

export const transfer = onchainTable("transfer", (t) => ({
  id: t.text().primaryKey(),
  block: t.bigint().notNull(),
  time: t.bigint().notNull(),
  hash: t.hex().notNull(),
  nonce: t.integer().notNull(),
  from: t.hex().notNull(),
  to: t.hex().notNull(),
  value: t.bigint().notNull(),
  balance: t.bigint().notNull(),
}));
