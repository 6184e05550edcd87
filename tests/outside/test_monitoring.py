"""Alerts and dashboard: with nothing but what a real process tells, and each alert fires when it should and not otherwise."""

import json
import re
import socket
import subprocess

import promql_parser
import pytest
import requests
import yaml
from conftest import BINARY, PATIENCE, Lines, eventually
from packages import PACKAGES, ROOT, SECRET_KEY, Database, clean, postrider

ALERTS = PACKAGES / "prometheus/alerts.yml"
DASHBOARD = json.loads((PACKAGES / "grafana/postrider.json").read_text())
# What Prometheus adds to everything that it scrapes.
TARGET_LABELS = {"job", "instance"}
RULES = {rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}


def panels():
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions():
    """Every expression of the alerts and of the dashboard, as Prometheus gets it."""
    yield from ((name, rule["expr"]) for name, rule in RULES.items())
    yield from ((panel["title"], query(target["expr"])) for panel in panels() for target in panel["targets"])


def query(expression):
    """An expression of the dashboard with its variables filled in."""
    return expression.replace("$__rate_interval", "10s").replace("$job", ".*")


# --- A real server and a real dispatcher, with some traffic ----------------------------------------------------------


class Process:
    """A part of Postrider that says where it listens."""

    def __init__(self, *arguments, **variables):
        self.process = subprocess.Popen(
            [BINARY, *arguments, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean(**variables)
        )
        self.lines = Lines(self.process.stdout)
        self.address = self.lines.find(r"http://(127\.0\.0\.1:\d+)").group(1)

    def get(self, path):
        return requests.get(f"http://{self.address}{path}", timeout=30)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, "".join(self.lines.all)


def samples(text):
    """What /metrics tells: the label sets of each name."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels = re.fullmatch(r"(\w+)(?:\{(.*)\})? \S+", line).groups()
            found.setdefault(name, []).append(dict(re.findall(r'(\w+)="([^"]*)"', labels or "")))
    return found


@pytest.fixture(scope="module")
def processes(request):
    database = Database()
    variables = {
        "POSTRIDER_DATABASE": database.url,
        "POSTRIDER_SECRET_KEY": SECRET_KEY,
        "POSTRIDER_ALLOWED_NETWORKS": "127.0.0.0/8",
        "POSTRIDER_SIGNING_SECRET": "a secret of sixteen bytes and more",
    }
    request.addfinalizer(database.drop)
    assert postrider("migrate", **variables).returncode == 0
    started = []

    def start(*arguments):
        started.append(Process(*arguments, **variables))
        request.addfinalizer(started[-1].stop)
        return started[-1]

    receiver = subprocess.Popen([BINARY, "listen", "--port", "0"], stdout=subprocess.PIPE, text=True)
    request.addfinalizer(receiver.wait)
    request.addfinalizer(receiver.kill)
    url = Lines(receiver.stdout).find(r"(http://127\.0\.0\.1:\d+/)").group(1)
    server, dispatcher = start("serve", "--no-dispatch", "--dev"), start("dispatch")
    # The first is delivered, and the second meets a port that nobody listens on.
    for destination in (url, "http://127.0.0.1:1/"):
        event = {"type": "monitoring.tried", "payload": {}, "destination_url": destination}
        requests.post(f"http://{server.address}/v1/events", json=event, timeout=30).raise_for_status()
    assert server.get("/readyz").ok
    settled = r'^postrider_settled_total\{verdict="(?:delivered|retry)"\} 1$'
    eventually("one delivered, one to be tried again", lambda: len(re.findall(settled, dispatcher.get("/metrics").text, re.MULTILINE)) == 2)
    return server, dispatcher


@pytest.fixture(scope="module")
def told(processes):
    found = {}
    for process in processes:
        for name, labels in samples(process.get("/metrics").text).items():
            found.setdefault(name, []).extend(labels)
    assert len(found) > 25
    return found


# --- Names and labels -------------------------------------------------------------------------------------------------


def selectors(node):
    """The selectors in an expression, each with the labels by which somebody above it groups."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("lhs", "rhs", "expr", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None:
            yield from selectors(child)
    for argument in getattr(node, "args", None) or []:
        yield from selectors(argument)


def test_every_name_and_label_is_one_that_a_process_tells(told):
    looked_at = set()
    for where, expression in expressions():
        found = list(selectors(promql_parser.parse(expression)))
        assert found, where
        for selector in found:
            if selector.name == "up":
                continue
            assert selector.name in told, f"{where}: nobody tells {selector.name}"
            looked_at.add(selector.name)
            for matcher in selector.matchers.matchers:
                values = {labels.get(matcher.name) for labels in told[selector.name]}
                assert matcher.name in TARGET_LABELS or values != {None}, f"{where}: {selector.name} has no {matcher.name}"
                if matcher.op in (promql_parser.MatchOp.Equal, promql_parser.MatchOp.NotEqual):
                    assert matcher.value in values, f"{where}: {matcher.name} of {selector.name} is never {matcher.value}"
        labels = set().union(*(one for selector in found for one in told.get(selector.name, []))) | TARGET_LABELS
        for grouped in re.findall(r"\b(?:by|on|ignoring) \(([^)]*)\)", expression):
            assert set(re.split(r",\s*", grouped)) <= labels, f"{where}: {grouped}"
    assert len(looked_at) > 20


def test_every_figure_is_on_the_dashboard(told):
    shown = {selector.name for panel in panels() for target in panel["targets"] for selector in selectors(promql_parser.parse(query(target["expr"])))}
    # A histogram is shown by its buckets, or by its sum and count.
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    missing = {re.sub(r"_(bucket|sum|count)$", "", name) for name in told} - families
    assert missing <= {name for name in missing if "endpoint" in name}


# --- The dashboard in a real Prometheus -------------------------------------------------------------------------------


@pytest.fixture
def prometheus(processes, tmp_path):
    """Debian's Prometheus, with our rules and our own example of a configuration, on our processes."""
    configuration = yaml.safe_load((PACKAGES / "prometheus/scrape.yml").read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(ALERTS)]
    (job,) = configuration["scrape_configs"]
    assert len(job["static_configs"][0]["targets"]) == 3
    job["static_configs"][0]["targets"] = [process.address for process in processes]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={address}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines = Lines(process.stderr)
    lines.find("Server is ready")
    yield f"http://{address}/api/v1"
    process.terminate()
    process.wait(PATIENCE)


def test_every_panel_shows_something_in_a_real_prometheus(prometheus, processes):
    def ask(path, **parameters):
        answer = requests.get(f"{prometheus}/{path}", params=parameters, timeout=30).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    # A rate needs two scrapes, and something that happened.
    eventually("scraped", lambda: float((ask("query", query="min(count_over_time(up[1m]))")["result"] or [{"value": [0, 0]}])[0]["value"][1]) >= 4)
    for panel in panels():
        for target in panel["targets"]:
            expression = query(target["expr"])

            def look(expression=expression):
                # So that there are requests and groups of events at the time that is looked at.
                event = {"type": "monitoring.tried", "payload": {}, "destination_url": "http://127.0.0.1:1/"}
                requests.post(f"http://{processes[0].address}/v1/events", json=event, timeout=30).raise_for_status()
                return ask("query", query=expression)["result"]

            seen = eventually(f"{panel['title']}: {expression}", look, patience=20)
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert all(label in one["metric"] for one in seen), f"{panel['title']}: nothing is called {label}"
    loaded = {rule["name"] for group in ask("rules")["groups"] for rule in group["rules"] if rule["health"] != "err"}
    assert loaded == set(RULES)
    values = ask("query", query="label_replace(postrider_build_info, \"x\", \"\", \"\", \"\")")["result"]
    assert {one["metric"]["job"] for one in values} == {"postrider"}


def test_the_dashboard_is_in_order():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) and DASHBOARD["uid"] == "postrider"
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used == variables
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"], panel["title"]


# --- The alerts -------------------------------------------------------------------------------------------------------

# A day on which all is well: a server and two dispatchers, some traffic, an attempt in ten fails.
PROCESSES = ["serve:8400", "dispatch-1:8400", "dispatch-2:8400"]
WELL = {
    "up": "1x1800",
    "postrider_build_info{version='0.1.0'}": "1x1800",
    "postrider_process_start_time_seconds": "1000x1800",
    "postrider_store_up": "1x1800",
    "postrider_deliveries_due": "3x1800",
    "postrider_oldest_due_age_seconds": "1x1800",
    "postrider_deliveries{status='dead'}": "0x1800",
    "postrider_pool_connections{state='used'}": "2x1800",
    "postrider_pool_connections_max": "10x1800",
    "postrider_queue_refused_total": "0x1800",
}
OF_SERVERS = {
    "postrider_http_requests_total{route='/v1/events',status='202'}": "0+600x1800",
    "postrider_http_requests_total{route='/v1/events',status='503'}": "0x1800",
    "postrider_http_requests_total{route='/readyz',status='503'}": "0+6x1800",
}
OF_DISPATCHERS = {
    "postrider_dispatcher_in_flight": "20x1800",
    "postrider_claimed_total": "0+300x1800",
    "postrider_settled_total{verdict='dead'}": "0x1800",
    "postrider_attempt_responses_total{class='2xx'}": "0+270x1800",
    "postrider_attempt_responses_total{class='none'}": "0+30x1800",
    "postrider_attempts_total{outcome='blocked'}": "0x1800",
    "postrider_leases_lost_total": "0x1800",
    "postrider_lease_renewals_lost_total": "0x1800",
    "postrider_lease_renewals_failed_total": "0x1800",
    "postrider_store_errors_total": "0x1800",
}

# What differs (for one process, or for all that have it), when nothing must fire yet, and what must have fired when, in
# minutes. What is not named must be silent at both times.
SCENARIOS = {
    "all is well": ({}, 60, {}, 1790),
    "nobody is scraped": ({(one, name): None for one in PROCESSES for name in [*WELL, *OF_SERVERS, *OF_DISPATCHERS]}, 4, {"PostriderAbsent"}, 6),
    "a process does not answer": ({("dispatch-2:8400", "up"): "1x60 0x60"}, 62, {"PostriderDown"}, 64),
    "a process crashes again and again": (
        {("serve:8400", "postrider_process_start_time_seconds"): "1000x60 2000x5 3000x5 4000x5 5000x500"}, 70, {"PostriderRestarts"}, 80),
    "the last dispatcher is gone": (
        {(None, name): values.replace("x1800", "x60 stale") for name, values in OF_DISPATCHERS.items()}, 60, {"PostriderNoDispatcher"}, 64),
    "one dispatcher of two is gone": (
        {("dispatch-2:8400", "postrider_dispatcher_in_flight"): "20x60 stale"}, 69, {"PostriderFewerDispatchers"}, 73),
    "two versions run": (
        {("serve:8400", "postrider_build_info{version='0.1.0'}"): "1x60 stale", ("serve:8400", "postrider_build_info{version='0.2.0'}"): "_x60 1x200"},
        110, {"PostriderVersionsDiffer"}, 125),
    "the database is away": ({(None, "postrider_store_up"): "1x60 0x100"}, 62, {"PostriderStoreDown"}, 64),
    "calls to the database fail": (
        {("dispatch-1:8400", "postrider_store_errors_total"): "0x60 0+2x100"}, 69, {"PostriderStoreErrors"}, 73),
    "one call to the database failed": ({("dispatch-1:8400", "postrider_store_errors_total"): "0x60 1x200"}, 62, {}, 75),
    "all connections are used": (
        {("serve:8400", "postrider_pool_connections{state='used'}"): "2x60 10x100"}, 65, {"PostriderPoolFull"}, 67),
    "nobody says how much is due": (
        {(None, "postrider_deliveries_due"): "3x60 stale"}, 69, {"PostriderNotCounted"}, 73),
    "nobody takes what is due": (
        {(None, "postrider_claimed_total"): "0+300x60 18000x100"}, 74, {"PostriderNothingDelivered"}, 78),
    "what is due is old, and dispatchers are busy": (
        {(None, "postrider_oldest_due_age_seconds"): "1x60 1+60x100", (None, "postrider_dispatcher_in_flight"): "400x200"},
        75, {"PostriderDueForLong"}, 120),
    "an endpoint is disabled, and its deliveries wait": (
        {(None, "postrider_oldest_due_age_seconds"): "1x60 1+60x100"}, 75, {"PostriderDueForLong", "PostriderHeldBack"}, 95),
    "the backlog doubles": (
        {(None, "postrider_deliveries_due"): "800x60 800+100x100"}, 68, {"PostriderBacklogGrows"}, 82),
    "a backlog is worked off": ({(None, "postrider_deliveries_due"): "50000-500x100"}, 20, {}, 90),
    "a dispatcher has no free slot": (
        {("dispatch-1:8400", "postrider_dispatcher_in_flight"): "20x60 512x100"}, 70, {"PostriderDispatcherFull"}, 77),
    "a delivery has died": (
        {("dispatch-1:8400", "postrider_settled_total{verdict='dead'}"): "0x60 1x100"}, 60, {"PostriderDeadLetters"}, 62),
    "a delivery was quarantined, which no attempt settles": (
        {(None, "postrider_deliveries{status='dead'}"): "4x60 5x100"}, 60, {"PostriderDeadLetters"}, 62),
    "dead letters wait for a day": (
        {(None, "postrider_deliveries{status='dead'}"): "4x1800"}, 1430, {"PostriderDeadLettersWait"}, 1450),
    "most attempts fail": (
        {(None, "postrider_attempt_responses_total{class='none'}"): "0+30x60 1800+900x100"}, 70, {"PostriderAttemptsFail"}, 95),
    "the one attempt of the hour fails": (
        {(None, "postrider_attempt_responses_total{class='2xx'}"): "9x200", (None, "postrider_attempt_responses_total{class='none'}"): "0x60 1x100"}, 62, {}, 90),
    "a destination leads to a closed address": (
        {("dispatch-1:8400", "postrider_attempts_total{outcome='blocked'}"): "0x60 1x100"}, 60, {"PostriderAttemptsBlocked"}, 62),
    "a lease was lost": ({("dispatch-1:8400", "postrider_leases_lost_total"): "0x60 1x100"}, 60, {"PostriderLeasesLost"}, 62),
    "a lease could not be kept": ({("dispatch-1:8400", "postrider_lease_renewals_lost_total"): "0x60 1x100"}, 60, {"PostriderLeasesLost"}, 62),
    "renewals fail": (
        {("dispatch-1:8400", "postrider_lease_renewals_failed_total"): "0x60 0+1x100"}, 65, {"PostriderRenewalsFail"}, 68),
    "events are sent away": ({("serve:8400", "postrider_queue_refused_total"): "0x60 50x100"}, 60, {"PostriderEnqueuesRefused"}, 62),
    "requests end badly": (
        {("serve:8400", "postrider_http_requests_total{route='/v1/events',status='503'}"): "0x60 0+30x100"}, 64, {"PostriderServerErrors"}, 70),
}


def series(changes):
    """The series of a scenario."""
    found = {}
    for process in PROCESSES:
        own = OF_SERVERS if process.startswith("serve") else OF_DISPATCHERS
        for name, values in {**WELL, **own}.items():
            found[process, name] = values
    for (process, name), values in changes.items():
        matching = [key for key in found if key[1] == name and process in (None, key[0])]
        for key in matching or [(process, name)]:
            found[key] = values
    return [
        {"series": re.sub(r"^(\w+)(?:\{(.*)\})?$", rf"\1{{job='postrider',instance='{process}',\2}}", name), "values": values}
        for (process, name), values in found.items()
        if values is not None
    ]


def test_each_alert_fires_when_it_should_and_is_silent_otherwise(tmp_path):
    fired = set().union(*(names for _, _, names, _ in SCENARIOS.values()))
    assert fired == set(RULES), "every alert has a scenario in which it fires"
    # Whether one fires is asked of Prometheus' own series of alerts, for all of them at once.
    tests = []
    for title, (changes, silent_at, names, fires_at) in SCENARIOS.items():
        asked = "count by (alertname) (ALERTS{alertstate='firing'})"
        tests.append({
            "name": title,
            "interval": "1m",
            "input_series": series(changes),
            "promql_expr_test": [
                {"expr": asked, "eval_time": f"{silent_at}m", "exp_samples": []},
                {"expr": f"{asked} > bool 0", "eval_time": f"{fires_at}m", "exp_samples": [{"labels": f"{{alertname='{name}'}}", "value": 1} for name in sorted(names)]},
            ],
        })
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(tmp_path / "tests.yml")], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_the_configuration():
    done = subprocess.run(["promtool", "check", "config", str(PACKAGES / "prometheus/scrape.yml")], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and f"{len(RULES)} rules found" in done.stdout, done.stdout + done.stderr


def test_each_alert_leads_to_what_to_do():
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs/operating.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for name, rule in RULES.items():
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page.endswith("/docs/operating.md") and anchor in anchors, name
        assert rule["labels"]["severity"] in ("critical", "warning", "info") and rule["annotations"]["summary"], name
