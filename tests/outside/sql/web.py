"""A web application: each request is one transaction on a connection that many requests share, as with a pool."""

import http.server
import json
import os

import psycopg
from psycopg.types.json import Jsonb

connection = psycopg.connect(os.environ["SHOP_DATABASE"], prepare_threshold=0)
ENQUEUE = "select postrider.enqueue('order.placed', %s, %s)"


class Declined(Exception):
    pass


def place(order):
    """Writes the order and its event, or neither."""
    with connection.transaction():
        if order.get("isolation"):
            connection.execute(f"set transaction isolation level {order['isolation']}")
        connection.execute("insert into orders (number) values (%s)", [order["number"]])
        if order.get("with_a_gift"):
            try:
                with connection.transaction():  # a savepoint
                    connection.execute(ENQUEUE, [Jsonb({"gift": order["number"]}), order.get("url")])
                    raise Declined("there are no gifts left")
            except Declined:
                pass
        event = connection.execute(ENQUEUE, [Jsonb({"order": order["number"]}), order.get("url")]).fetchone()[0]
        if order.get("declined"):
            raise Declined("the card was declined")
        return str(event)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        try:
            status, answer = 201, {"event": place(order)}
        except Declined as declined:
            status, answer = 402, {"error": str(declined)}
        except psycopg.Error as error:
            status, answer = 400, {"state": error.sqlstate, "code": error.diag.constraint_name, "hint": error.diag.message_hint}
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
