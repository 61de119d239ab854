"""What bash and fish complete, and the man page, against what `outbox --help` says.

usage: shells.py ROOT OUTBOX
"""
import pathlib
import re
import subprocess
import sys

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


def differences(root, outbox):
    listed = run(outbox, "--help").partition("Commands:\n")[2].partition("\n\n")[0]
    commands = [re.match(r"  ((?:[a-z]+ ?)+?)(?:  |$)", line).group(1).strip() for line in listed.splitlines()]
    groups = {command.split()[0] for command in commands if " " in command}
    page = run("groff", "-man", "-Tascii", "-P-cbou", "-rLL=200n", root / "packaging/man/outbox.1")
    for shell in (bash, fish):
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
        for shell in (bash, fish):
            found = shell(root, "outbox", *command.split(), "--") - {"--help"}
            if found != options:
                yield f"{shell.__name__}: {command} has {sorted(found ^ options)} too many or too few"
        if f"outbox {command}" not in page:
            yield f"the man page does not tell of {command}"
        yield from (f"the man page does not tell of {option}" for option in options if option not in page)


def main():
    root, outbox = pathlib.Path(sys.argv[1]), sys.argv[2]
    found = list(differences(root, outbox))
    said = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", root / "packaging/man/outbox.1"], check=True,
                          text=True, stderr=subprocess.PIPE).stderr
    print("\n".join(found), said, sep="\n")
    return 1 if found or said else 0


if __name__ == "__main__":
    sys.exit(main())
