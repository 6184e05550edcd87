import http.server
import os
import threading

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["WEBHOOK_SECRET"])
seen, lock = set(), threading.Lock()


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("content-length", "0"))
        if length > 1_000_000:
            return self.answer(413)
        body = self.rfile.read(length)
        try:
            # The bytes as they came: JSON that was read and written again is other bytes.
            webhook.verify(body, dict(self.headers), json_parse=False)
        except (WebhookVerificationError, ValueError):
            return self.answer(401)
        event_id = self.headers["webhook-id"]
        with lock:
            if event_id in seen:
                print("seen before", event_id, flush=True)
            else:
                print(self.headers["postrider-event-type"], event_id, body.decode(), flush=True)
                seen.add(event_id)
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9400"))), Receiver)
print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
