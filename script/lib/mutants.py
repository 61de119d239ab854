"""Finds what can be broken in the functions that docs/guards.md names, and writes a copy of the
sources in which each of these mutations can be switched on by its number: OUTBOX_MUTANT=17.

A mutation takes a guard out: a condition never holds, one operand of it does not count, a predicate answers the
contrary, a statement is left out; in SQL, an operand of AND does not count, a comparison is another, rows are not
locked, a NOT is not there. What only hands an error on is no guard. The copy needs one build for all.
"""

import dataclasses
import re

HEADER = """#pragma once
#include <cstdlib>
namespace outbox::mutants {
inline const int chosen = std::getenv("OUTBOX_MUTANT") ? std::atoi(std::getenv("OUTBOX_MUTANT")) : 0;
}
#define OUTBOX_MUTANT(number) (::outbox::mutants::chosen == (number))
"""
HANDS_ON = re.compile(r"!\s*[\w.\[\]]+(?:->|\.)ok\(\)|![\w.]+|[\w.]+(?:->|\.)ok\(\)")
DECLARES = re.compile(r"(?:const\s+)?[\w:]+(?:<[^=]*>)?[\s*&]+\w+\s*=(?!=)")
LEAVES_OUT = re.compile(r"^[ \t]+((?:\w+(?:::|\.|->))*\w+\([^\n]*\)|[\w.\->\[\]]+ (?:[+\-|&]?=)(?!=) [^\n]*|(?:\+\+|--)[\w.\->]+);$",
                        re.MULTILINE)
# Texts that the compiler joins, with comments between them; SQL in them.
TEXT = r'(?:R"(?P<{0}>\w*)\(.*?\)(?P={0})"|"(?:\\.|[^"\\\n])*")'
TEXTS = re.compile(r"(?<![\w'])" + TEXT.format("first") + r"(?:(?:\s|//[^\n]*)+" + TEXT.format("more") + ")*", re.DOTALL)
SQL = re.compile(r"\b(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|WHERE|AND)\b")
ENDS_OPERAND = re.compile(r"\b(?:AND|OR|ORDER|GROUP|LIMIT|RETURNING|FOR|UNION|ON|WHEN|THEN|ELSE|END|"
                          r"(?:LEFT |CROSS |INNER )?JOIN|WINDOW|HAVING|WHERE|(?<!DISTINCT )FROM|SET)\b|[,;]")
COMPARISON = re.compile(r"(?<![-<>=!@|&#~])([<>])(=?)(?![-<>=@|&#])")
LOCKS = re.compile(r"\s*\bFOR (?:NO KEY )?(?:UPDATE|(?:KEY )?SHARE)(?: OF \w+)?(?: SKIP LOCKED| NOWAIT)?")
NOT = re.compile(r"\bNOT (?=EXISTS|\(|NULL|[a-z])")
KEYWORDS = ("return", "throw", "if", "for", "while", "switch", "static_assert", "defined", "sizeof", "delete", "co_return")


@dataclasses.dataclass
class Mutant:
    file: str  # below the root
    line: int
    function: str
    kind: str
    code: str
    number: int = 0

    def key(self):
        """The same in another run, wherever the line has moved to."""
        return f"{self.file}: {self.function}: {self.kind}: {' '.join(self.code.split())}"


@dataclasses.dataclass
class Edit:
    begin: int
    end: int
    before: str
    after: str
    mutant: Mutant


def masked(text):
    """The text with comments and literals blanked, so that brackets can be counted."""
    def blank(match):
        found = match.group(0)
        quote = found[0] if found[0] in "\"'" else ""
        if quote:
            return quote + "_" * (len(found) - 2) + quote
        return re.sub(r"[^\n]", " ", found)
    return re.sub(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])*\'', blank, text,
                  flags=re.DOTALL)


def closing(text, begin):
    """The place behind the bracket that closes the one at `begin`."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    depth = []
    for place in range(begin, len(text)):
        char = text[place]
        if char in pairs:
            depth.append(pairs[char])
        elif depth and char == depth[-1]:
            depth.pop()
            if not depth:
                return place + 1
    raise ValueError("unbalanced brackets")


def body_behind(text, parameters):
    """(begin, end) of the body of what has its parameters at `parameters`, or None: it is called or declared."""
    place = closing(text, parameters)
    while place < len(text):
        rest = text[place:]
        skipped = re.match(r"\s+|const\b|noexcept\b|override\b|final\b|->\s*[\w:<>*& ]+", rest)
        if skipped:
            place += skipped.end()
        elif macro := re.match(r"OUTBOX_\w+\s*\(", rest):
            place = closing(text, place + macro.end() - 1)
        elif rest[0] == ":" and rest[1] != ":":
            # What members begin with: up to the body, which no name and no comma stands before.
            place += 1
            while member := re.match(r"\s*[\w:<>]+\s*[({]", text[place:]):
                place = closing(text, place + member.end() - 1)
                comma = re.match(r"\s*,", text[place:])
                if not comma:
                    break
                place += comma.end()
        elif rest[0] == "{":
            return place, closing(text, place)
        else:
            return None
    return None


def definitions(text, name, of_any_class=False):
    """(begin of the name, body begin, body end) of each definition of `name` in a masked text."""
    scope, _, simple = name.rpartition("::")
    scope = scope.rpartition("::")[2]
    # A namespace before the class is not looked at.
    qualified = re.escape(f"{scope}::{simple}" if scope else simple)
    if of_any_class:
        qualified = r"\w+::" + qualified
    for match in re.finditer(r"(?<![\w.>~])" + qualified + r"\s*\(", text):
        if scope or of_any_class or text[match.start() - 1:match.start()] != ":":
            if body := body_behind(text, match.end() - 1):
                yield match.start(), *body
    for begin in re.finditer(r"\b(?:class|struct)\s+(?:\w+::)*" + re.escape(scope) + r"\b[^;{()]*\{", text) if scope else ():
        end = closing(text, begin.end() - 1)
        for match in re.finditer(r"(?<![\w.>:~])" + re.escape(simple) + r"\s*\(", text[begin.end():end]):
            if body := body_behind(text, begin.end() + match.end() - 1):
                yield begin.end() + match.start(), *body


def operands(text, begin, end):
    """("&&" or "||", [(begin, end), ...]) of a condition; with one operand, which may hold others in brackets."""
    for operator in ("||", "&&"):
        parts, depth, last, place = [], 0, begin, begin
        while place < end:
            char = text[place]
            depth += (char in "([{") - (char in ")]}")
            if depth == 0 and text.startswith(operator, place):
                parts.append((last, place))
                place += 2
                last = place
                continue
            place += 1
        if parts:
            return operator, [*parts, (last, end)]
    return "", [(begin, end)]


def trimmed(text, begin, end):
    part = text[begin:end]
    return begin + len(part) - len(part.lstrip()), end - (len(part) - len(part.rstrip()))


def joined(texts):
    """What the compiler makes of such texts, as it would be written in one pair of quotes."""
    parts = []
    for part in re.finditer(TEXT.format("only"), texts, re.DOTALL):
        if part[0].startswith("R"):
            raw = part[0][part[0].index("(") + 1:part[0].rindex(")")]
            parts.append(raw.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        else:
            parts.append(part[0][1:-1])
    return "".join(parts)


def operand_end(sql, begin):
    """Where an operand of AND that begins there ends, or None: not within this text."""
    depth, place, between = 0, begin, False
    while place < len(sql):
        char = sql[place]
        if char == "'":
            place = sql.find("'", place + 1)
            if place < 0:
                return None
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth < 0:
                return place
        elif depth == 0 and (place == 0 or not sql[place - 1].isalnum()):
            if sql.startswith("BETWEEN ", place):
                between = True
            elif end := ENDS_OPERAND.match(sql, place):
                if not (between and end[0] == "AND"):
                    return place
                between = False
        place += 1
    return len(sql) if depth == 0 and not between else None


def sql_mutations(sql, goes_on):
    """(kind, what is gone or another, SQL) of each. `goes_on`: text is joined to its end when it runs."""
    for match in re.finditer(r"\b(?:WHERE|AND|ON) ", sql):
        begin = match.end()
        end = operand_end(sql, begin)
        joined_by_and = match[0] == "AND " or (end is not None and sql.startswith("AND", end))
        if end is None or not joined_by_and or (goes_on and end == len(sql)) or not sql[begin:end].strip():
            continue
        if match[0] == "AND " and re.search(r"\bBETWEEN (?:(?!\bAND\b).)*$", sql[:match.start()]):
            continue
        # Its parameters stay, with their types.
        operand = sql[begin:end].strip()
        yield "does not count in SQL", operand, f"{sql[:begin]}({operand} OR true) {sql[end:]}"
    for match in COMPARISON.finditer(sql):
        other = match[1] + ("" if match[2] else "=")
        yield "compared otherwise in SQL", sql[max(0, match.start() - 30):match.end() + 30], sql[:match.start()] + other + sql[match.end():]
    for match in LOCKS.finditer(sql):
        yield "no lock in SQL", match[0].strip(), sql[:match.start()] + sql[match.end():]
    for match in NOT.finditer(sql):
        if not sql[:match.start()].endswith("IF "):
            yield "no NOT in SQL", sql[match.start():match.start() + 60], sql[:match.start()] + sql[match.end():]


class Function:
    """Collects the edits of one definition."""

    def __init__(self, file, name, text, mask, begin, body, end):
        self.file, self.name, self.text, self.mask = file, name, text, mask
        self.begin, self.body, self.end = begin, body, end
        self.edits = []

    def add(self, kind, begin, end, before, after):
        begin, end = trimmed(self.mask, begin, end)
        line = self.text.count("\n", 0, begin) + 1
        self.edits.append(Edit(begin, end, before, after,
                               Mutant(self.file, line, self.name, kind, self.text[begin:end])))

    def condition(self, begin, end):
        operator, parts = operands(self.mask, begin, end)
        for part in parts if operator else ():
            if operator == "&&":
                self.add("does not count", *part, "(OUTBOX_MUTANT(@) || static_cast<bool>(", "))")
            else:
                self.add("does not count", *part, "(!OUTBOX_MUTANT(@) && static_cast<bool>(", "))")
        return operator

    def find_sql(self):
        for match in TEXTS.finditer(self.text, self.body, self.end):
            # In a comment or a character, or a constant of the compiler; or with a suffix behind it.
            statement = self.mask[max(self.mask.rfind(mark, 0, match.start()) for mark in ";}{"):match.start()]
            if self.mask[match.start()] == " " or re.search(r"\b(?:constexpr|static_assert)\b", statement) \
                    or re.match(r"\w", self.text[match.end():]) or not SQL.search(match[0]) or "@" in match[0]:
                continue
            goes_on = re.match(r"\s*\+", self.text[match.end():]) is not None
            for kind, what, sql in sql_mutations(joined(match[0]), goes_on):
                self.add(kind, match.start(), match.end(), f'(OUTBOX_MUTANT(@) ? "{sql}" : ', ")")
                self.edits[-1].mutant.code = what

    def find(self):
        declared = self.mask[max(self.mask.rfind(mark, 0, self.begin) for mark in ";}{"):self.begin]
        if re.search(r"\b(?:constexpr|consteval)\b", declared):
            return []
        for match in re.finditer(r"\bif\s*(\()", self.mask[self.body:self.end]):
            begin = self.body + match.start(1)
            end = closing(self.mask, begin) - 1
            begin += 1
            depth = 0
            for place in range(begin, end):  # behind what it begins with
                depth += (self.mask[place] in "([{") - (self.mask[place] in ")]}")
                if depth == 0 and self.mask[place] == ";":
                    begin = place + 1
            begin, end = trimmed(self.mask, begin, end)
            condition = self.mask[begin:end]
            if DECLARES.match(condition) or HANDS_ON.fullmatch(condition):
                continue
            self.add("never holds", begin, end, "(!OUTBOX_MUTANT(@) && static_cast<bool>(", "))")
            self.condition(begin, end)
        if re.search(r"\bbool\s+(?:\w+::)*$", declared):
            for match in re.finditer(r"\breturn\s+([^;{]+);", self.mask[self.body:self.end]):
                begin, end = self.body + match.start(1), self.body + match.end(1)
                if re.fullmatch(r"\w+", self.mask[begin:end].strip()):
                    continue
                if not self.condition(begin, end):
                    self.add("the contrary", begin, end, "(OUTBOX_MUTANT(@) != static_cast<bool>(", "))")
        self.find_sql()
        if not self.edits:
            for match in LEAVES_OUT.finditer(self.mask, self.body, self.end):
                whole = all(match[1].count(a) == match[1].count(b) for a, b in ("()", "{}", "[]"))
                # Not the rest of a statement that begins a line before.
                begins = re.search(r"(?:[;{}):]|\belse)\s*$", self.mask[:match.start()])
                if whole and begins and not match[1].startswith(KEYWORDS):
                    self.add("left out", match.start(1), match.end(1), "if (!OUTBOX_MUTANT(@)) { ", "; }")
        return self.edits


def find(root, names):
    """{file: [Edit, ...]}, and the names that no definition was found for. `names`: of functions, "Class::method"
    or "function"."""
    sources = {path: path.read_text() for folder in ("src", "apps")
               for path in sorted((root / folder).rglob("*")) if path.suffix in (".cpp", ".h")}
    masks = {path: masked(text) for path, text in sources.items()}
    edits, unknown = {}, []
    for name in names:
        simple = name.rpartition("::")[2]
        places = [(path, place) for of_any_class in (False, True) for path, text in sources.items() if simple in text
                  for place in definitions(masks[path], name, of_any_class)]
        # A name that stands alone is a function's, or where there is none a method's.
        if any(masks[path][place[0]:].startswith(name) for path, place in places):
            places = [(path, place) for path, place in places if masks[path][place[0]:].startswith(simple)
                      or "::" in name]
        for path, place in dict.fromkeys(places):
            file = str(path.relative_to(root))
            known = {(edit.begin, edit.end, edit.mutant.kind) for edit in edits.get(file, ())}
            edits.setdefault(file, []).extend(
                edit for edit in Function(file, name, sources[path], masks[path], *place).find()
                if (edit.begin, edit.end, edit.mutant.kind) not in known)
        if not places:
            unknown.append(name)
    return edits, unknown


def rewritten(text, edits):
    """The text with all of its mutations in it; they may stand one in another."""
    inserts = []
    for edit in edits:
        number = str(edit.mutant.number)
        width = edit.end - edit.begin
        inserts.append((edit.begin, 1, -width, edit.before.replace("@", number)))
        inserts.append((edit.end, 0, width, edit.after))
    out, last = [], 0
    for place, _, _, inserted in sorted(inserts, key=lambda insert: insert[:3]):
        out += [text[last:place], inserted]
        last = place
    return "".join(out) + text[last:]
