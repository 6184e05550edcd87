"""A small shop as web applications are written: each request is one transaction, and errors roll it back."""

import psycopg
from psycopg.types.json import Json


class Shop:
    def __init__(self, conninfo):
        self.conninfo = conninfo

    def place_order(self, number, url=None, fail=False, event_type="order.placed", payload=None):
        """Writes the order and its event together, and returns the event's id."""
        with psycopg.connect(self.conninfo) as connection:
            connection.execute("insert into orders (number) values (%s)", [number])
            event = connection.execute(
                "select postrider.enqueue(%(type)s, %(payload)s, %(url)s, idempotency_key => %(key)s)",
                {
                    "type": event_type,
                    "payload": Json({"order": number}) if payload is None else payload,
                    "url": url,
                    "key": f"order {number}",
                },
            ).fetchone()[0]
            if fail:
                raise RuntimeError("the card was declined")
            return event

    def close_plan(self, plan, url=None):
        """True for the one who may tell that the plan is done."""
        with psycopg.connect(self.conninfo) as connection:
            statement = "select postrider.enqueue_once(%s, 'plan.done', '{}', %s)"
            return connection.execute(statement, [plan, url]).fetchone()[0] is not None
