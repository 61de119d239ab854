"""The site is made without a warning; each page is in its menu; each link leads somewhere; a word typed into the
search of a page that was opened as a file finds its page.

usage: site.py ROOT
"""

import html.parser
import pathlib
import re
import subprocess
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """Where a page leads, and the places in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


def listed_pages(root):
    """The pages that the menu has."""
    menu = (root / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    return set(re.findall(r": (\S+\.md)$", menu, re.MULTILINE))


def search(root):
    """Types into the search of the page as it lies on the disk."""
    found = subprocess.run([root / "script/browser", "python", "-B", root / "tests/docs/search.py", root / "build/site"],
                           capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def main():
    root = pathlib.Path(sys.argv[1])
    unlisted = {str(page.relative_to(root)) for page in (root / "docs").rglob("*.md")} - listed_pages(root)
    assert not unlisted, f"mkdocs.yml has no place for {sorted(unlisted)}"
    made = subprocess.run([root / "script/site"], capture_output=True, text=True)
    assert made.returncode == 0 and "WARNING" not in made.stderr, made.stderr
    site = root / "build/site"
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 40, len(pages)
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            if path.name == "404.html":
                continue
            if not target.exists() or target.is_dir():
                wrong.append(f"{path.relative_to(site)}: {link}")
            elif url.fragment and target in pages and url.fragment not in pages[target].anchors | {"__top"}:
                wrong.append(f"{path.relative_to(site)}: {link} has no such place")
    assert not wrong, "\n".join(wrong[:20])
    search(root)


main()
