// A receiver that verifies with the official JavaScript library, and prints one JSON line per request.

const http = require("node:http");
const { Webhook } = require("standardwebhooks");

const webhook = new Webhook(process.env.WEBHOOK_SECRET);

const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    const body = Buffer.concat(parts).toString();
    let verified = true;
    try {
      webhook.verify(body, request.headers);
    } catch {
      verified = false;
    }
    response.writeHead(verified ? 204 : 400).end();
    const line = { verified, body, id: request.headers["webhook-id"], attempt: request.headers["postrider-attempt"] };
    console.log(JSON.stringify(line));
  });
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`));
