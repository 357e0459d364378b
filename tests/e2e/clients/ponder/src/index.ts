import { ponder } from "ponder:registry";
import { transfer } from "ponder:schema";

ponder.on("Logger:Transfer", async ({ event, context }) => {
  await context.db.insert(transfer).values({
    id: event.id,
    block: event.block.number,
    time: event.block.timestamp,
    hash: event.transaction.hash,
    nonce: event.transaction.nonce,
    from: event.args.from,
    to: event.args.to,
    value: event.args.value,
    // A state at the event's own block.
    balance: await context.client.getBalance({ address: event.args.from }),
  });
});
