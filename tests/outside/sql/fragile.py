"""A web application on a bad day: its process dies and its connections are cut, at the worst moments.

Whoever has no answer asks again, so an order that is there already is no error, and its event has a key of its own."""

import http.server
import json
import os

import psycopg

ENQUEUE = "select postrider.enqueue('order.placed', %s, idempotency_key => %s)"


def place(order):
    """Writes the order and its event, or neither."""
    trouble = order.get("trouble")
    with psycopg.connect(os.environ["SHOP_DATABASE"]) as connection:
        connection.execute("insert into orders (number) values (%s) on conflict do nothing", [order["number"]])
        event = connection.execute(ENQUEUE, [order["payload"], f"order/{order['number']}"]).fetchone()[0]
        if trouble == "killed before the commit":
            os._exit(1)
        if trouble == "cut off before the commit":
            connection.execute("select pg_terminate_backend(pg_backend_pid())")
        connection.commit()
        if trouble == "killed after the commit":
            os._exit(1)
    return str(event)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            status, answer = 201, {"event": place(order)}
        except psycopg.Error as error:
            status, answer = 503, {"state": error.sqlstate}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
