"""Opens a site from the disk in Chromium and types words into its search: each finds its page, and leads there.

usage: search.py SITE      (by script/browser python)
"""

import pathlib
import shutil
import sys

from playwright.sync_api import expect, sync_playwright

FINDS = {"quarantined": "docs/receiving.html", "tenant_share": "docs/tenants.html"}


def main():
    start = (pathlib.Path(sys.argv[1]) / "index.html").resolve().as_uri()
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = browser.new_page()
        for words, where in FINDS.items():
            page.goto(start)
            field = page.get_by_label("Search", exact=True).first
            field.click()
            expect(page.locator(".md-search-result__meta")).to_contain_text("Type to start searching")
            field.press_sequentially(words)
            hit = page.locator(f".md-search-result__link[href*='{where}']").first
            expect(hit).to_be_visible()
            hit.click()
            expect(page.locator("article h1").first).to_be_visible()
            assert where in page.url, page.url
        browser.close()


main()
