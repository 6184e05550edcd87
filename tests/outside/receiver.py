"""A receiver that verifies with the official Python library, and prints one JSON line per request."""

import http.server
import json
import os
import sys

import standardwebhooks

WEBHOOK = standardwebhooks.Webhook(os.environ["WEBHOOK_SECRET"])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            WEBHOOK.verify(body, {name.lower(): value for name, value in self.headers.items()})
            verified = True
        except standardwebhooks.WebhookVerificationError:
            verified = False
        self.send_response(204 if verified else 400)
        self.end_headers()
        line = {"verified": verified, "body": body.decode(), "id": self.headers["webhook-id"]}
        line["attempt"] = self.headers["postrider-attempt"]
        # In one piece, since requests come at the same time.
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
