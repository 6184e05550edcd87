"""The dashboard in a real browser: every page, the main flows, both colour schemes, a narrow screen, no mouse."""

import http.server
import itertools
import os
import pathlib
import re
import threading

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from conftest import HERE, Server, eventually

GOLDEN = HERE / "golden" / "dashboard.txt"
AXE = pathlib.Path(os.environ.get("NODE_PATH", "node_modules")) / "axe-core" / "axe.min.js"
# What a receiver could try: markup that would show in the page, or set something on it.
HOSTILE = b"<script>window.canary = 1</script><img src=x onerror='window.canary = 2'><h1>upstream is away</h1>"

WIDE, NARROW = (1280, 900), (360, 740)


class Fickle:
    """A receiver that answers with what it is told to."""

    def __init__(self):
        self.status = 503
        fickle = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(fickle.status)
                self.send_header("content-length", str(len(HOSTILE)))
                self.end_headers()
                self.wfile.write(HOSTILE)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture(scope="module")
def fickle():
    receiver = Fickle()
    yield receiver
    receiver.server.shutdown()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(
        tmp_path_factory.mktemp("dashboard"), POSTRIDER_RETRY_SCHEDULE="2s,1s", POSTRIDER_MAX_ATTEMPTS="3"
    )
    server.key = server.lines.find(r"(prk_[\w-]+)").group(1)
    server.auth = {"Authorization": f"Bearer {server.key}"}
    yield server
    assert server.stop() == 0, "".join(server.lines.all)


class Browser:
    """Chromium, and what this looks at in it."""

    FLAGS = [
        *["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"],
        *["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"],
    ]

    def __init__(self, server, size=WIDE, scheme="light"):
        options = webdriver.ChromeOptions()
        for flag in self.FLAGS:
            options.add_argument(flag)
        options.binary_location = "/usr/bin/chromium"
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.server = server
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, path):
        self.driver.get(self.server.url + path)

    def script(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self):
        return self.script("return document.querySelector('main').innerText")

    def sees(self, *words):
        """Waits until the page says all of this, by itself."""
        eventually(f"the page says {words}", lambda: all(word in self.text() for word in words))

    def focus(self, selector):
        """Puts the focus on something; from then on the page leaves it where it is."""
        self.script("document.querySelector(arguments[0]).focus()", selector)

    def press(self, *keys):
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def focused(self):
        """What somebody without a mouse would act on now."""
        return self.script("const e = document.activeElement; return (e.id || e.name || e.innerText || '').trim()")

    def tab_to(self, name):
        """Tabs on until this is reached; on the way everything can be seen to have the focus."""
        for _ in range(80):
            self.press(Keys.TAB)
            outline = self.script("return getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"{self.focused()} does not show that it has the focus"
            if self.focused() == name:
                return
        raise AssertionError(f"{name} cannot be reached: {self.focused()}")

    def complaints(self):
        """What the browser complained of since it was last asked."""
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]

    def sign_in(self):
        self.open("/sign-in")
        self.find("#key").send_keys(self.server.key)
        self.find("button.primary").click()
        self.sees("Overview")


@pytest.fixture
def browse(server):
    browsers = []

    def start(**options):
        browser = Browser(server, **options)
        browsers.append(browser)
        return browser

    yield start
    for browser in browsers:
        browser.driver.quit()


def test_the_main_flow_without_a_mouse(browse, fickle):
    """Sign in, add an endpoint, send, see it fail, retried, dead; retry it, see it delivered. Nothing is ever reloaded."""
    fickle.status = 503
    browser = browse()
    browser.open("/endpoints/new")
    browser.tab_to("key")
    browser.press(browser.server.key, Keys.ENTER)
    browser.sees("Add an endpoint")

    browser.press(Keys.TAB)
    assert browser.focused() == "Skip to the content"
    browser.press(Keys.ENTER)
    assert browser.script("return document.activeElement.id") == "main"
    browser.tab_to("url")
    browser.press(fickle.url)
    browser.tab_to("event_types")
    browser.press("invoice.*")
    browser.tab_to("Add the endpoint")
    browser.press(Keys.ENTER)
    browser.sees("The endpoint is there", "whsec_", "It is shown only now.")

    browser.open("/events/new")
    browser.tab_to("type")
    browser.press("invoice.paid")
    browser.tab_to("Send")
    browser.press(Keys.ENTER)
    browser.sees("It is on its way to 1 endpoint.")
    browser.focus(".plainlist a")
    browser.press(Keys.ENTER)
    # What follows appears by itself.
    browser.sees("Attempt 1", "503", "upstream is away", "Next attempt in")
    browser.sees("Attempt 2")
    browser.sees("It is dead because all 3 attempts failed", "Attempt 3", "Retry now")
    assert browser.script("return window.canary") is None, "what the receiver answered is text"
    delivery = browser.script("return location.pathname")

    fickle.status = 200
    browser.tab_to("Retry now")
    browser.press(Keys.ENTER)
    browser.sees("It was delivered", "Attempt 4")
    assert browser.script("return location.pathname") == delivery
    assert browser.complaints() == []


def test_dead_letters_are_chosen_and_retried_and_panels_close_by_escape(browse, fickle):
    fickle.status = 503
    browser = browse()
    browser.sign_in()
    server = browser.server
    endpoint = {"url": fickle.url, "event_types": ["report.*"], "max_attempts": 1}
    server.call("POST", "/v1/endpoints", 201, json=endpoint, headers=server.auth)
    for number in range(3):
        event = {"type": "report.ready", "payload": {"number": number}}
        server.call("POST", "/v1/events", 202, json=event, headers=server.auth)
    browser.open("/dead?event_type=report.ready")
    # They appear while the page is open.
    rows = lambda: browser.driver.find_elements(By.CSS_SELECTOR, "tbody tr")
    eventually("three dead letters", lambda: len(rows()) == 3)
    fickle.status = 200
    browser.focus("tbody tr:first-child input[type=checkbox]")
    browser.press(Keys.SPACE)
    browser.focus("#chosen-ones button")
    browser.press(Keys.ENTER)
    browser.sees("1 delivery is due now.")
    browser.open("/dead?event_type=report.ready")
    browser.focus("details.considered summary")
    browser.press(Keys.ENTER)
    is_open = "return document.querySelector('details.considered').open"
    assert browser.script(is_open)
    browser.press(Keys.ESCAPE)
    assert not browser.script(is_open) and browser.focused().startswith("Retry all")
    browser.press(Keys.ENTER)
    browser.focus("details.considered .panel button")
    browser.press(Keys.ENTER)
    browser.sees("2 deliveries are due now.")
    assert browser.complaints() == []


def test_rows_stay_while_somebody_aims_at_one(browse, fickle):
    fickle.status = 200
    browser = browse()
    browser.sign_in()
    server = browser.server
    server.call("POST", "/v1/endpoints", 201, json={"url": fickle.url, "event_types": ["aim.*"]}, headers=server.auth)
    send = lambda: server.call("POST", "/v1/events", 202, json={"type": "aim.at", "payload": {}}, headers=server.auth)
    send()
    browser.open("/deliveries?event_type=aim.at")
    ids = lambda: browser.script("return [...document.querySelectorAll('tbody tr')].map((row) => row.id)")
    eventually("one row", lambda: len(ids()) == 1)
    eventually("it is live", lambda: browser.script("return document.getElementById('live').dataset.state") == "live")
    asked = lambda: browser.script(
        "return performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch').length"
    )
    row = browser.find("tbody tr")
    aim = lambda x: ActionChains(browser.driver, duration=0).move_to_element_with_offset(row, x, 0).perform()
    aim(0)
    before, first = asked(), ids()
    send()
    wiggle = itertools.cycle((3, -3))

    def asked_twice():
        aim(next(wiggle))
        return asked() >= before + 2

    eventually("the page is asked for again", asked_twice)
    assert ids() == first, "the row is where it was"
    # Whoever only rests there is shown what is new.
    eventually("the new row", lambda: len(ids()) == 2)
    assert browser.complaints() == []


@pytest.fixture(scope="module")
def pages(server, fickle):
    """Something to be seen on every page; the paths of them all."""
    call = lambda *arguments, **options: server.call(*arguments, headers=server.auth, **options).json()
    fickle.status = 503
    body = {"url": fickle.url, "event_types": ["order.*"], "description": "Warehouse", "max_attempts": 1}
    endpoint = call("POST", "/v1/endpoints", 201, json=body)
    payload = {"id": "ord_1", "lines": [{"sku": "A-1", "count": 2}], "note": "<script>window.canary = 3</script>"}
    event = {"type": "order.placed", "payload": payload, "once": {"subject": "order/1"}, "metadata": {"a": 1}}
    event = call("POST", "/v1/events", 202, json=event)
    delivery = event["deliveries"][0]["id"]
    eventually("it is dead", lambda: call("GET", f"/v1/deliveries/{delivery}", 200)["status"] == "dead")
    paused = call("POST", "/v1/endpoints", 201, json={"url": fickle.url, "event_types": ["never"]})
    call("POST", f"/v1/endpoints/{paused['id']}/pause", 200, json={"reason": "it moves house"})
    return {
        "overview": "/",
        "deliveries": "/deliveries",
        "nothing found": "/deliveries?event_type=no.such",
        "delivery": f"/deliveries/{delivery}",
        "dead letters": "/dead?event_type=order.placed",
        "endpoints": "/endpoints",
        "endpoint": f"/endpoints/{endpoint['id']}",
        "paused endpoint": f"/endpoints/{paused['id']}",
        "edit an endpoint": f"/endpoints/{endpoint['id']}/edit",
        "new endpoint": "/endpoints/new",
        "events": "/events?type=order.placed",
        "event": f"/events/{event['id']}",
        "new event": "/events/new",
        "once": "/once",
        "subject": "/once?subject=order/1",
        "no such subject": "/once?prefix=no/such",
        "audit": "/audit",
        "keys": "/keys",
    }


def checked(browser, name, width):
    """A page that everybody can use: by the rules of axe, without moving sideways, and without a word from the browser."""
    browser.driver.execute_script(AXE.read_text())
    # Everything that can be opened is looked at as well.
    browser.script("for (const one of document.querySelectorAll('details:not(.considered)')) one.open = true")
    found = browser.driver.execute_async_script("axe.run().then(arguments[0])")
    violations = [(each["id"], [node["target"] for node in each["nodes"]][:3]) for each in found["violations"]]
    assert violations == [], name
    assert browser.script("return document.documentElement.scrollWidth") <= width, f"{name} is too wide"
    hidden = "return [...document.querySelectorAll('.scroll')].some((one) => one.scrollWidth > one.clientWidth)"
    assert not browser.script(hidden), f"a table of {name} has columns that are out of sight"
    assert browser.script("return window.canary") is None, name
    assert browser.complaints() == [], name


@pytest.mark.parametrize("size, scheme", [(WIDE, "light"), (NARROW, "dark")], ids=["wide-light", "narrow-dark"])
def test_every_page_can_be_used_by_everybody(browse, pages, size, scheme):
    browser = browse(size=size, scheme=scheme)
    browser.open("/sign-in")
    checked(browser, "sign in", size[0])
    browser.sign_in()
    dark = browser.script("return matchMedia('(prefers-color-scheme: dark)').matches")
    ground = browser.script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in re.findall(r"\d+", ground)[:3])
    assert (dark, brightness < 200) == ((scheme == "dark"),) * 2, ground
    for name, path in pages.items():
        browser.open(path)
        checked(browser, name, size[0])
    browser.open("/deliveries/dlv_01jd8x4k2hf4xr5zt3yq7m9nbw")
    browser.sees("Not found", "There is no delivery")
    assert all("404" in line for line in browser.complaints()), "the page that is not there"
    checked(browser, "not found", size[0])
    browser.open("/no/such/page")
    browser.sees("Not found", "There is nothing at /no/such/page.", "To the overview")
    assert all("404" in line for line in browser.complaints()), "the address that is not there"
    checked(browser, "nowhere", size[0])


STRUCTURE = """
const out = [];
const shown = (e) => e.innerText.trim().replace(/\\s+/g, " ");
const walk = (e) => {
  const role = { HEADER: "header", NAV: "nav", MAIN: "main", FORM: "form", TABLE: "table" }[e.tagName];
  const label = e.getAttribute("aria-label");
  if (role) out.push(role + (label ? " " + label : ""));
  if (/^(H1|H2|TH|LABEL|BUTTON|SUMMARY|DT)$/.test(e.tagName) && !e.closest("tbody")) out.push("  " + e.tagName.toLowerCase() + " " + shown(e));
  if (e.tagName === "svg" && label) out.push("  image " + label.split(":")[0]);
  for (const child of e.children) walk(child);
};
for (const one of document.querySelectorAll("details")) one.open = true;
walk(document.body);
return out;
"""


def test_the_structure_of_the_pages_is_as_it_was(browse, pages):
    """Landmarks, headings, labels, columns and buttons of every page, compared with a file."""
    browser = browse()
    browser.sign_in()
    written = []
    for name, path in pages.items():
        browser.open(path)
        lines = browser.script(STRUCTURE)
        # Those of the frame are on every page, and said once.
        frame = next(at for at, line in enumerate(lines) if line == "main")
        written += [f"# {name}", *(lines if not written else lines[frame:]), ""]
    text = re.sub(r"(?<!^  h)\d+", "#", "\n".join(line.rstrip() for line in written), flags=re.MULTILINE)
    if os.environ.get("POSTRIDER_BLESS"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text, "if the change is meant, write it anew with POSTRIDER_BLESS=1"
