"""`script/demo --keep-running`, watched in Chromium from the address it prints until it is through, while its relays are
killed: figures change, the page has no fault, and shows the dead letter at the end.

usage: demo_test.py ROOT FOLDER_OF_THE_PROGRAMS      (by script/browser python)
"""

import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from playwright.sync_api import expect, sync_playwright

ROOT, PROGRAMS = pathlib.Path(sys.argv[1]), sys.argv[2]
PATIENCE_S = 300


def wait_for(what, said, text):
    end = time.monotonic() + PATIENCE_S
    while not (found := re.search(text, said())):
        assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}\n{said()}"
        time.sleep(0.1)
    return found


def watch(said, browser):
    faults = []
    page = browser.new_page()
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(wait_for("the address", said, r"Watch it in a browser: (http://\S+)")[1])
    page.wait_for_selector("body[data-ready]")
    sent = page.get_by_text(re.compile("[0-9,]+ sent")).first
    before = sent.inner_text()
    expect(sent).not_to_have_text(before)
    # Messages of the page are taken while it is waited for.
    end = time.monotonic() + PATIENCE_S
    while "Still running" not in said():
        assert time.monotonic() < end, said()
        page.wait_for_timeout(200)
    expect(page.get_by_role("link", name=re.compile("1 event was given up on"))).to_be_visible()
    expect(page.get_by_role("table", name="Routes")).to_be_visible()
    assert not faults, faults


def main():
    expect.set_options(timeout=PATIENCE_S * 1000)
    with tempfile.NamedTemporaryFile("w") as out:
        demo = subprocess.Popen(["/usr/bin/python3", "-B", ROOT / "script/lib/demo.py", PROGRAMS, "--keep-running"],
                                stdout=out, stderr=subprocess.STDOUT)

        def said():
            text = pathlib.Path(out.name).read_text()
            assert demo.poll() is None, text
            return text

        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"])
                watch(said, browser)
                browser.close()
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(PATIENCE_S)


main()
