"""The documentation as a site: complete, with links that lead somewhere, and readable without a network."""

import html.parser
import os
import pathlib
import re
import subprocess
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and where in it one can jump."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.anchors, self.text = [], [], set(), ""
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name == "href" and tag == "a":
                self.links.append(value)
            elif name in ("href", "src", "srcset", "data", "poster", "action"):
                self.loaded.append(value)

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([ROOT / "scripts/site", folder], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARN" not in done.stderr and "ERROR" not in done.stderr, done.stderr
    return {path: Page(path) for path in folder.rglob("*.html")}, folder


def documents():
    """Every page that the repository has for its readers."""
    pages = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    pages += [page for page in ROOT.glob("docs/**/*.md") if page.name != "SUMMARY.md"]
    return pages + list(ROOT.glob("apps/*/README.md"))


def test_every_page_is_on_the_site_under_its_title(site):
    pages, folder = site
    assert len(documents()) > 30
    for document in documents():
        path = folder / document.relative_to(ROOT).with_suffix(".html")
        path = path.with_name("index.html") if path.name == "README.html" else path
        assert path in pages, f"{document} is not on the site: docs/SUMMARY.md does not have it"
        title = re.search(r"^# (.*)$", document.read_text(), re.MULTILINE)[1].replace("`", "")
        assert title in pages[path].text, f"{path} does not show {title!r}"


def test_links_lead_somewhere(site):
    pages, folder = site
    count = 0
    for path, page in pages.items():
        # This one is shown for any address, and its links begin where the site is.
        if path.name == "404.html":
            continue
        for link in page.links + page.loaded:
            address = urllib.parse.urlparse(link)
            if address.scheme or not (address.path or address.fragment):
                continue
            target = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(address.path))) if address.path else path
            assert target.is_file(), f"{path.relative_to(folder)} leads to {link}, which is not there"
            if address.fragment and target in pages:
                anchors = pages[target].anchors
                assert urllib.parse.unquote(address.fragment) in anchors, f"{path.relative_to(folder)} leads to {link}, whose anchor is not there"
            count += 1
    assert count > 500


def test_the_site_loads_nothing_from_elsewhere(site):
    pages, folder = site
    for path, page in pages.items():
        for address in page.loaded:
            assert not re.match(r"([a-z]+:)?//", address), f"{path.relative_to(folder)} loads {address}"
    sheets = list(folder.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        for found in re.finditer(r"url\(\s*['\"]?([^)'\"]+)|@import\s+['\"]?([^;'\"]+)", sheet.read_text()):
            address = found[1] or found[2]
            assert not re.match(r"([a-z]+:)?//", address), f"{sheet.relative_to(folder)} loads {address}"
            if not address.startswith(("data:", "#")):
                assert (sheet.parent / address.split("#")[0].split("?")[0]).is_file(), f"{sheet.relative_to(folder)} loads {address}"
