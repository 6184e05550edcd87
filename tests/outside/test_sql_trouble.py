"""SQL functions when things go wrong, or are unusual: races, crashes, cut connections, odd databases, and owners without powers."""

import concurrent.futures
import contextlib
import os
import re
import sys

import psycopg
import pytest
import requests
from conftest import HERE, eventually
from test_sql import ODD, RECEIVERS_SECRET, Database, Shop, dispatch, postrider, psql


@contextlib.contextmanager
def making(**options):
    made = Database(os.environ["POSTRIDER_TEST_POSTGRES"], **options)
    try:
        yield made
    finally:
        made.drop()


def test_of_fifty_sessions_of_psql_that_claim_at_the_same_moment_one_wins():
    # Each waits for the lock that the starter holds, and all of them go on when it is given back.
    claim = (
        "select pg_advisory_lock_shared(1);"
        " select coalesce(postrider.enqueue_once('plan/1', 'plan.{}', '{{\"racer\":{}}}')::text, 'lost');"
    )
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with making() as database:
        for generation in (1, 2, 3):
            with concurrent.futures.ThreadPoolExecutor(50) as pool, psycopg.connect(database.owner) as starter:
                starter.execute("select pg_advisory_lock(1)")
                kinds = ["failed", "completed"] * 25
                racers = [pool.submit(psql, database.app, claim.format(kind, number)) for number, kind in enumerate(kinds)]
                eventually("all wait at the start", lambda: database.run(waiting) == [(50,)])
                starter.execute("select pg_advisory_unlock(1)")
                done = [racer.result() for racer in racers]
            assert [one.stderr for one in done] == [""] * 50
            answers = [one.stdout.split()[-1] for one in done]
            (winner,) = [answer for answer in answers if answer != "lost"]
            assert database.run("select generation, event_id::text from postrider.once('plan/1')") == [(generation, winner)]
            assert int(database.payload(winner).split(":")[1].rstrip("}")) == answers.index(winner), "it is the winner's event"
            assert database.run("select count(*) from postrider.events") == [(generation,)]
            assert database.run("select postrider.reset_once('plan/1')") == [(generation + 1,)]


def test_a_web_application_that_is_killed_and_cut_off_keeps_orders_and_events_alike(receive):
    """Some of its clients ask again until they are answered, as they should, and some never do."""
    troubles = [None, "killed before the commit", "cut off before the commit", "killed after the commit"]
    with making() as database:
        shops = []

        def ask(order):
            """The answer, or nothing where the application did not live to give one. It is started again, then."""
            if not shops or shops[-1].process.poll() is not None:
                shops.append(receive([sys.executable, "sql/fragile.py"], SHOP_DATABASE=database.app))
            try:
                return requests.post(shops[-1].url, json=order, timeout=60)
            except requests.ConnectionError:
                shops[-1].process.wait(60)
                return None

        answered = {}
        for number in range(24):
            trouble = troubles[number % 4]
            order = {"number": number, "payload": ODD.replace('"z":1', f'"z":{number}')}
            first = ask({**order, "trouble": trouble})
            if trouble is None:
                assert first.status_code == 201
            elif trouble.startswith("killed"):
                assert first is None, trouble
            else:
                assert (first.status_code, first.json()) == (503, {"state": "57P01"})
            if number < 16:
                repeated = ask(order)
                assert repeated.status_code == 201
                answered[number] = repeated.json()["event"]
                if trouble is None:
                    assert repeated.json() == first.json(), "the key finds the first event"
        assert len(shops) >= 12, "it was killed twelve times"

        orders = {number for (number,) in database.run("select number from orders")}
        kept = [number for number in range(16, 24) if troubles[number % 4] in (None, "killed after the commit")]
        assert orders == {*range(16), *kept}, "what was committed, and nothing else"
        keys = dict(database.run("select key, event_id::text from postrider.idempotency_keys"))
        assert keys.keys() == {f"order/{number}" for number in orders}
        assert all(keys[f"order/{number}"] == event for number, event in answered.items())
        assert database.counts() == (len(orders), len(orders)), "one event for each, also where it was asked for twice"
        for number in orders:
            assert database.payload(keys[f"order/{number}"]) == ODD.replace('"z":1', f'"z":{number}')


def test_the_owner_of_the_schema_needs_no_powers_beyond_it(receive):
    with making(is_owners_own=True) as database:
        powers = "select rolsuper or rolcreatedb or rolcreaterole from pg_roles where rolname = current_user"
        assert database.run(powers) == [(False,)]
        dispatch(database, POSTRIDER_ALLOWED_NETWORKS="127.0.0.0/8")
        receiver = receive([sys.executable, "receiver.py"], WEBHOOK_SECRET=RECEIVERS_SECRET)
        event = Shop(database.app).place_order(1, url=receiver.url)
        dispatch(database, POSTRIDER_ALLOWED_NETWORKS="127.0.0.0/8")
        assert receiver.next()["verified"]
        assert "order.placed" in postrider(database, "events", "show", str(event)), "the command line takes both kinds of ids"
        assert database.run("select delivered from postrider.overview") == [(1,)]
        database.run(f"call postrider.revoke_from('{database.role}')")
        done = psql(database.app, "select postrider.enqueue('order.placed', '{}')")
        assert "ERROR:  42501: permission denied for schema postrider" in done.stderr


def test_the_trigger_of_the_documentation_tells_of_each_refund_once_and_of_nothing_else():
    document = (HERE / "../../docs/sql.md").read_text()
    (trigger,) = re.findall(r"^```sql\n(create function tell_of_refunds.*?)^```$", document, re.MULTILINE | re.DOTALL)
    with making() as database:
        database.run("create table invoices (id bigint primary key, status text not null)")
        database.run(f"grant select, insert, update on invoices to {database.role}")
        assert psql(database.owner, trigger).returncode == 0
        done = psql(
            database.app,
            "insert into invoices select n, 'paid' from generate_series(1, 5) n; update invoices set status = 'sent' where id = 1;"
            "begin; update invoices set status = 'refunded' where id = 2; rollback;"
            "update invoices set status = 'refunded' where id in (3, 4); update invoices set status = 'refunded';",
        )
        assert (done.returncode, done.stderr) == (0, "")
        told = "select type, convert_from(payload, 'UTF8')::jsonb -> 'invoice' from postrider.events order by 2"
        assert database.run(told) == [("invoice.refunded", invoice) for invoice in (1, 2, 3, 4, 5)]
        database.run(f"call postrider.revoke_from('{database.role}')")
        done = psql(database.app, "insert into invoices values (6, 'paid'); update invoices set status = 'refunded' where id = 6;")
        assert "ERROR:  42501: permission denied for schema postrider" in done.stderr, "with the rights of whoever changes the row"
        assert database.run("select status from invoices where id = 6") == [("paid",)]
        database.run("alter function tell_of_refunds() security definer set search_path = pg_catalog, pg_temp")
        assert psql(database.app, "update invoices set status = 'refunded' where id = 6").stderr == ""
        assert database.run("select count(*) from postrider.events") == [(6,)]


UNUSUAL = {
    "Turkish, where a small I has a dot": {"made_as": "template template0 locale_provider icu icu_locale 'tr-TR' locale 'C.UTF-8'"},
    "letters that differ in case only are equal": {
        "made_as": "template template0 locale_provider icu icu_locale 'und-u-ks-level2' locale 'C.UTF-8'"
    },
    "without an encoding": {"made_as": "template template0 encoding SQL_ASCII locale 'C'"},
    "strings as they were before 9.1": {"settings": ["standard_conforming_strings = off", "bytea_output = 'escape'"]},
    "times and nulls as elsewhere": {
        "settings": ["datestyle = 'SQL, DMY'", "timezone = 'Asia/Kathmandu'", "intervalstyle = 'sql_standard'",
                     "array_nulls = off", "transform_null_equals = on"],
    },
    "strict everywhere": {"settings": ["default_transaction_isolation = 'serializable'", "plpgsql.extra_errors = 'all'"]},
    "names mean columns": {"settings": ["plpgsql.variable_conflict = 'use_column'", "search_path = 'nowhere'"]},
    "names mean variables": {"settings": ["plpgsql.variable_conflict = 'use_variable'", "quote_all_identifiers = on"]},
}


@pytest.mark.parametrize("options", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_functions_and_library_agree_in_databases_that_are_set_up_otherwise(options):
    """What one has enqueued, the other knows again: the same fingerprint, whatever the database makes of letters and times."""
    call = (
        "select postrider.enqueue('Invoice.PAID', '{\"I\":\"\u0130\u0131\"}', 'https://HOOKS.Example.COM/I', tenant => 'TITI', idempotency_key => 'KI',"
        " metadata => '{\"I\":\"1.50\",\"i\":\"\u0131\",\"_\":\"x\",\"a\":\"b\"}', deliver_at => '2031-02-03T04:05:06.5Z', topic => 'Ti') is not null;"
        " select postrider.enqueue_once('plan/I', 'plan.done', '{}') is not null,"
        " postrider.enqueue_once('plan/i', 'plan.done', '{}') is not null, postrider.enqueue_once('plan/I', 'plan.failed', '{}') is null;"
        " select postrider.reset_once('plan/I') = 2, (select generation from postrider.once('plan/i')) = 1;"
    )
    with making(**options) as database:
        done = psql(database.app, call)
        assert done.returncode == 0, done.stderr
        assert set(done.stdout.replace("|", "\n").split()) == {"t"}, done.stdout
        again = ["send", "Invoice.PAID", "--data", '{"I":"\u0130\u0131"}', "--to", "https://hooks.example.com/I", "--tenant", "TITI"]
        again += ["--idempotency-key", "KI", "--deliver-at", "2031-02-03T04:05:06.5Z", "--topic", "Ti"]
        again += ["--metadata", "I=1.50", "--metadata", "i=\u0131", "--metadata", "_=x", "--metadata", "a=b"]
        told = postrider(database, *again, POSTRIDER_SIGNING_SECRET="a secret of sixteen bytes and more")
        assert "sent before under this idempotency key" in told
        with pytest.raises(AssertionError, match="idempotency_conflict"):
            postrider(database, *again[:-1], "a=B", POSTRIDER_SIGNING_SECRET="a secret of sixteen bytes and more")
        owners = (
            "select bool_and(postrider.cancel(d.id, 'no')), bool_and(postrider.retry(d.id)), bool_and(not postrider.retry(d.id)),"
            " (select pending from postrider.overview) = 1, (select count(*) from postrider.dead_letters) = 0"
            " from postrider.deliveries d"
        )
        assert database.run(owners) == [(True, True, True, True, True)]
        canonical = "select destination_url = 'https://hooks.example.com/I' and lane = 'hooks.example.com' from postrider.deliveries"
        assert database.run(canonical) == [(True,)]
