// Takes orders, one JSON object per line, each in a transaction of its own, and prints what became of it.
const readline = require("readline");
const { Client } = require("pg");

async function place(client, order) {
  await client.query("begin");
  try {
    await client.query("insert into orders (number) values ($1)", [order.number]);
    const { rows } = await client.query(
      "select postrider.enqueue($1, $2, $3, idempotency_key => $4, metadata => $5) as event",
      [order.type ?? "order.placed", order.payload, order.url ?? null, `order ${order.number}`, { order: order.number }],
    );
    if (order.fail) throw new Error("the card was declined");
    await client.query("commit");
    return { event: rows[0].event };
  } catch (error) {
    await client.query("rollback");
    const { code, message, hint, constraint, column } = error;
    return { code, message, hint, constraint, column };
  }
}

async function main() {
  const client = new Client({ connectionString: process.env.SHOP_DATABASE });
  await client.connect();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await place(client, JSON.parse(line))));
  }
  await client.end();
}

main();
