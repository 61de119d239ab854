"""What script/lib/demo.py is made of: child processes, journals that are counted, a display."""

import os
import shutil
import subprocess
import sys
import time


class DemoFailed(Exception):
    pass


class Program:
    """A child process whose output goes to files in the demo's folder."""

    def __init__(self, programs, folder, name, command, environment=None):
        self.name = name
        self.out_path = os.path.join(folder, name + ".out")
        self.log_path = os.path.join(folder, name + ".log")
        with open(self.out_path, "ab") as out, open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                # The kernel ends a child when this process goes, however it goes.
                ["setpriv", "--pdeathsig", "KILL", os.path.join(programs, command[0])] + command[1:],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                process_group=0,  # Ctrl-C is ours to handle
            )

    def check(self):
        if self.process.poll() is not None:
            raise DemoFailed(f"{self.name} ended with code {self.process.returncode}:\n{self.log_tail()}")

    def log_tail(self):
        with open(self.log_path, errors="replace") as log:
            return "".join(log.readlines()[-15:])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


class Journal:
    """Counts the lines of what a service received from another as they come."""

    def __init__(self, path):
        self.path = path
        self.offset = 0
        self.applied = 0
        self.repeats = 0

    def refresh(self):
        if not os.path.exists(self.path):
            return
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.offset += len(line)
                self.applied += b'"applied":true' in line
                self.repeats += b'"applied":false' in line


class Received:
    """All that a service received."""

    def __init__(self, folder, speakers):
        self.journals = {who: Journal(os.path.join(folder, who + ".jsonl")) for who in speakers}

    def refresh(self):
        for journal in self.journals.values():
            journal.refresh()

    @property
    def applied(self):
        return sum(journal.applied for journal in self.journals.values())

    @property
    def repeats(self):
        return sum(journal.repeats for journal in self.journals.values())


class Display:
    """Lines that change in a terminal; one plain line now and then elsewhere."""

    def __init__(self):
        self.live = sys.stdout.isatty()
        self.drawn = 0  # lines to be drawn over
        self.shown = []
        self.last_plain = 0.0

    def erase(self):
        if self.drawn:
            sys.stdout.write(f"\033[{self.drawn}A\033[J")
        self.drawn = 0

    def figures(self, lines, plain):
        """`plain`: the same in one line, for where there is no terminal."""
        if self.live:
            self.erase()
            width = shutil.get_terminal_size().columns - 1
            print("\n".join(line[:width] for line in lines), flush=True)
            self.drawn = len(lines)
        elif lines != self.shown and time.monotonic() - self.last_plain >= 1:
            self.last_plain = time.monotonic()
            print(plain, flush=True)
            self.shown = lines

    def final_figures(self, lines, plain):
        if self.live:
            self.figures(lines, plain)
            self.drawn = 0
        elif lines != self.shown:
            print(plain, flush=True)
        self.shown = []

    def say(self, text=""):
        self.erase()
        print(text, flush=True)
