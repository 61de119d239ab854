"""What bash, fish and zsh complete, and the man page, against what `outbox --help` says.

usage: shells.py ROOT OUTBOX
"""
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile
import time

BASH = r"""
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_outbox outbox "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, text=True, stdout=subprocess.PIPE).stdout


def bash(root, *words):
    return set(run("bash", "--norc", "-c", BASH, "bash", root / "packaging/completions/outbox.bash", *words).split())


def fish(root, *words):
    out = run("fish", "--no-config", "-c", f"source {root}/packaging/completions/outbox.fish; complete -C '{' '.join(words)}'")
    return {line.split("\t")[0] for line in out.splitlines()}


class Zsh:
    """A zsh on a terminal of its own, which writes down what it would offer."""

    # Each offer goes through `compadd`; with -O, -A or -D it only asks what would fit.
    SETUP = r"""
PS1= PS2= RPS1=
setopt no_beep no_prompt_cr
fpath=({folder} $fpath)
autoload -Uz compinit && compinit -u -d {folder}/dump
compadd() {{
    builtin compadd "$@"
    local result=$?
    if [[ ${{@[1,(i)(-|--)]}} != *-(O|A|D)\ * ]]; then
        local -a offered
        builtin compadd -A offered "$@"
        print -rl -- $offered >> {folder}/offered
    fi
    return $result
}}
# Nothing is shown or inserted: the next words are typed into an empty line.
_tell() {{ comppostfuncs=(_tell) compstate[list]= compstate[insert]=; print -r -- . >> {folder}/ended }}
comppostfuncs=(_tell)
zstyle ':completion:*' insert-tab false
"""

    def __init__(self, root, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "_outbox").write_text((root / "packaging/completions/outbox.zsh").read_text())
        (self.folder / "setup").write_text(self.SETUP.format(folder=folder))
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "dumb"
            os.execvp("zsh", ["zsh", "-f", "-i"])
        self.asked = 0
        self.type(f". {folder}/setup; print -r -- . >> {folder}/ready\n")
        self.wait_for("ready", 1)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, name, lines):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if select.select([self.terminal], [], [], 0.01)[0]:
                os.read(self.terminal, 65536)
            path = self.folder / name
            if path.exists() and path.read_text().count("\n") >= lines:
                return
        raise TimeoutError(f"zsh said nothing of {name}")

    def complete(self, *words):
        offered = self.folder / "offered"
        offered.write_text("")
        self.asked += 1
        self.type("\x15" + " ".join(words) + "\t")
        self.wait_for("ended", self.asked)
        return {line for line in offered.read_text().splitlines() if line}

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


def differences(root, outbox, zsh):
    listed = run(outbox, "--help").partition("Commands:\n")[2].partition("\n\n")[0]
    commands = [re.match(r"  ((?:[a-z]+ ?)+?)(?:  |$)", line).group(1).strip() for line in listed.splitlines()]
    groups = {command.split()[0] for command in commands if " " in command}
    page = run("groff", "-man", "-Tascii", "-P-cbou", "-rLL=200n", root / "packaging/man/outbox.1")
    for shell in (bash, fish, zsh):
        name = shell.__name__
        first = {word for word in shell(root, "outbox", "") if not word.startswith("-")}
        if first != {command.split()[0] for command in commands}:
            yield f"{name} completes {sorted(first)}"
        for group in groups:
            second = {word for word in shell(root, "outbox", group, "") if not word.startswith("-")}
            if second != {command.split()[1] for command in commands if command.startswith(group + " ")}:
                yield f"{name} completes {group} with {sorted(second)}"
        if shell(root, "outbox", "relay", "--format", "") != {"raw", "cloudevents", "cloudevents-structured", "debezium"}:
            yield f"{name} does not complete the formats"
        files = shell(root, "outbox", "relay", "--config", f"{root}/packag")
        if not any(file.rstrip("/").endswith("packages.txt") for file in files):
            yield f"{name} completes no file: {sorted(files)}"
    for command in commands:
        options = set(re.findall(r"^  (--[a-z0-9-]+)", run(outbox, *command.split(), "--help"), re.MULTILINE))
        for shell in (bash, fish, zsh):
            found = shell(root, "outbox", *command.split(), "--") - {"--help"}
            if found != options:
                yield f"{shell.__name__}: {command} has {sorted(found ^ options)} too many or too few"
        if f"outbox {command}" not in page:
            yield f"the man page does not tell of {command}"
        yield from (f"the man page does not tell of {option}" for option in options if option not in page)


def main():
    root, outbox = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    run("zsh", "-n", root / "packaging/completions/outbox.zsh")
    with tempfile.TemporaryDirectory() as folder:
        shell = Zsh(root, folder)

        def zsh(_, *words):
            return shell.complete(*words)

        found = list(differences(root, outbox, zsh))
        shell.close()
    said = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", root / "packaging/man/outbox.1"], check=True,
                          text=True, stderr=subprocess.PIPE).stderr
    print("\n".join(found), said, sep="\n")
    return 1 if found or said else 0


if __name__ == "__main__":
    sys.exit(main())
