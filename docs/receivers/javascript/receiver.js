const http = require("node:http");
const { Webhook } = require("standardwebhooks");

const webhook = new Webhook(process.env.WEBHOOK_SECRET);
const seen = new Set();

async function receive(request, response) {
  const parts = [];
  let length = 0;
  for await (const part of request) {
    length += part.length;
    if (length > 1_000_000) return response.writeHead(413).end();
    parts.push(part);
  }
  // The bytes as they came: JSON that was read and written again is other bytes.
  const body = Buffer.concat(parts);
  try {
    webhook.verify(body, request.headers, { jsonParse: false });
  } catch {
    return response.writeHead(401).end();
  }
  const id = request.headers["webhook-id"];
  if (seen.has(id)) {
    console.log("seen before", id);
  } else {
    console.log(request.headers["postrider-event-type"], id, body.toString());
    seen.add(id);
  }
  response.writeHead(204).end();
}

const server = http.createServer((request, response) => {
  receive(request, response).catch(() => response.destroy());
});
server.listen(process.env.PORT ?? 9400, "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/`);
});
