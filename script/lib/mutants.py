"""Finds what can be broken in what docs/guards.md names (functions, the methods of a class, texts that are
constants, functions and views of the migrations), and writes a copy of the sources in which each of these mutations
can be switched on by its number: OUTBOX_MUTANT=17.

A mutation takes a guard out: a condition never holds, one operand of it does not count, a predicate answers the
contrary, what separates two fields or, where there is no other, a statement is left out; in SQL, an operand of AND
does not count, a comparison is another, rows are not locked, a NOT is not there, an IF never holds, as in Lua. What
only hands an error on is no guard. The copy needs one build for all.
"""

import collections
import dataclasses
import re

HEADER = """#pragma once
#include <cstdlib>
#include <string>
namespace outbox::mutants {
inline const int chosen = std::getenv("OUTBOX_MUTANT") ? std::atoi(std::getenv("OUTBOX_MUTANT")) : 0;
inline std::string operand(bool counts, const auto& sql) {
    return counts ? std::string(sql) : "(" + std::string(sql) + " OR true)";
}
}
#define OUTBOX_MUTANT(number) (::outbox::mutants::chosen == (number))
"""
# Read by the file that cmake/embed_sql.cmake writes, whose last line it takes part in.
SQL_HEADER = """#pragma once
#include <string>
#include <vector>
namespace outbox::mutants {{
struct Sql {{ int number; std::string_view file, before, after; }};
const Sql kSql[] = {{
{rows}    {{}}}};
template <typename File> std::vector<File> switched(std::span<const File> files) {{
    std::vector<File> all(files.begin(), files.end());
    for (const Sql& sql : kSql) {{
        if (sql.number == 0 || sql.number != chosen) continue;
        for (File& file : all) {{
            const auto place = file.path.starts_with(sql.file) ? file.text.find(sql.before) : file.text.npos;
            if (place == file.text.npos) continue;
            file.text = *new std::string(std::string(file.text).replace(place, sql.before.size(), sql.after));
        }}
    }}
    return all;
}}
}}
"""
EMBEDDED = "{ return kFiles; }"
SWITCHED = ("{ static const auto files = mutants::switched(std::span<const EmbeddedSql>(kFiles)); "
            "return files; }")
HANDS_ON = re.compile(r"!\s*[\w.\[\]]+(?:->|\.)ok\(\)|![\w.]+|[\w.]+(?:->|\.)ok\(\)")
DECLARES = re.compile(r"(?:const\s+)?[\w:]+(?:<[^=]*>)?[\s*&]+\w+\s*=(?!=)")
LEAVES_OUT = re.compile(r"^[ \t]+((?:\w+(?:::|\.|->))*\w+\([^\n]*\)|[\w.\->\[\]]+ (?:[+\-|&]?=)(?!=) [^\n]*|(?:\+\+|--)[\w.\->]+);$",
                        re.MULTILINE)
# Texts that the compiler joins, with comments between them; SQL in them.
TEXT = r'(?:R"(?P<{0}>\w*)\(.*?\)(?P={0})"|"(?:\\.|[^"\\\n])*")'
TEXTS = re.compile(r"(?<![\w'])" + TEXT.format("first") + r"(?:(?:\s|//[^\n]*)+" + TEXT.format("more") + ")*", re.DOTALL)
SQL = re.compile(r"\b(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|WHERE|AND)\b")
ENDS_OPERAND = re.compile(r"\b(?:AND|OR|ORDER|GROUP|LIMIT|RETURNING|FOR|UNION|ON|WHEN|THEN|ELSE|END|"
                          r"(?:LEFT |CROSS |INNER )?JOIN|WINDOW|AS|INTO|LOOP|USING|HAVING|WHERE|(?<!DISTINCT )FROM|SET)\b|[,;]")
COMPARISON = re.compile(r"(?<![-<>=!@|&#~])([<>])(=?)(?![-<>=@|&#])")
LOCKS = re.compile(r"\s*\bFOR (?:NO KEY )?(?:UPDATE|(?:KEY )?SHARE)(?: OF \w+)?(?: SKIP LOCKED| NOWAIT)?")
NOT = re.compile(r"\bNOT (?=EXISTS|\(|NULL|[a-z])")
# The name of an operand that stands between two texts.
NAMED_OPERAND = re.compile(r'\b(?:WHERE|AND) "\s*\+\s*([\w:.]+(?:\([\w:. ]*\))?)\s*\+\s*"\s*(?:\)|AND|ORDER|RETURNING|LIMIT|FOR)')
SEPARATES = re.compile(r"^[ \t]+([\w.\->]+ \+= '[^\n]*');$", re.MULTILINE)
SQL_BEGINS = re.compile(r"^CREATE (?:OR REPLACE )?(FUNCTION|PROCEDURE|VIEW) (?:(?:\{\{schema\}\}|pg_temp)\.)?(\w+)\b", re.MULTILINE)
IF = re.compile(r"(?<!END )\b(?:IF|ELSIF)\s(.*?)\sTHEN\b", re.DOTALL)
LUA_IF = re.compile(r"\bif ((?:(?!\\n).)*?) then\b")
KEYWORDS = ("return", "throw", "if", "for", "while", "switch", "static_assert", "defined", "sizeof", "delete", "co_return")


@dataclasses.dataclass
class Mutant:
    file: str  # below the root
    line: int
    function: str
    kind: str
    code: str
    number: int = 0
    sql: tuple = ()  # of a migration: a definition before and after

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
            # So that a word begins behind it.
            parts.append(raw.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n "))
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
        elif depth == 0 and (char in ",;" or place == 0 or not sql[place - 1].isalnum()):
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
    for match in re.finditer(r"\b(?:WHERE|AND|ON)\s", sql):
        begin = match.end()
        end = operand_end(sql, begin)
        joined_by_and = match[0].startswith("AND") or (end is not None and sql.startswith("AND", end))
        if end is None or not joined_by_and or (goes_on and end == len(sql)) or not sql[begin:end].strip():
            continue
        if match[0].startswith("AND") and re.search(r"\bBETWEEN (?:(?!\bAND\b).)*$", sql[:match.start()]):
            continue
        # Its parameters stay, with their types.
        operand = sql[begin:end].strip()
        if re.search(r"\$\w*\$", operand):  # a text of PL/pgSQL ends there
            continue
        yield "does not count in SQL", operand, f"{sql[:begin]}({operand} OR true) {sql[end:]}"
    for match in COMPARISON.finditer(re.sub(r"'[^']*'", lambda text: "_" * len(text[0]), sql)):
        other = match[1] + ("" if match[2] else "=")
        yield "compared otherwise in SQL", sql[max(0, match.start() - 30):match.end() + 30], sql[:match.start()] + other + sql[match.end():]
    for match in LOCKS.finditer(sql):
        yield "no lock in SQL", match[0].strip(), sql[:match.start()] + sql[match.end():]
    for match in NOT.finditer(sql):
        if not sql[:match.start()].endswith("IF "):
            yield "no NOT in SQL", sql[match.start():match.start() + 60], sql[:match.start()] + sql[match.end():]


def if_mutations(pattern, sql):
    for match in pattern.finditer(sql):
        begin, end = match.span(1)
        if re.search(r";|\bWHEN\b", match[1]):
            continue
        never = f"(false AND ({match[1]}))" if pattern is IF else f"false and ({match[1]})"
        yield "never holds", match[1], sql[:begin] + never + sql[end:]


def without_comments(sql):
    """SQL with blanks in place of what `--` begins."""
    return re.sub(r"'(?:[^']|'')*'|--[^\n]*", lambda m: m[0] if m[0][0] == "'" else " " * len(m[0]), sql)


def sql_definitions(root):
    """{name: [(file, line, text), ...]} of the functions and views of the migrations, as they are in the end."""
    found = collections.defaultdict(list)
    for path in sorted((root / "src" / "databases").glob("*/migrations/*/*.sql")):
        raw = path.read_text()
        text = without_comments(raw)
        for match in SQL_BEGINS.finditer(text):
            end = text.index(";", match.end())
            if match[1] != "VIEW":
                quote = re.compile(r"\$\w*\$").search(text, match.end())
                end = text.index(";", text.index(quote[0], quote.end()))
            if path.name[0].isdigit():
                found[match[2]] = [known for known in found[match[2]]
                                   if known[0].parent != path.parent or not known[0].name[0].isdigit()]
            found[match[2]].append((path, raw.count("\n", 0, match.start()) + 1, raw[match.start():end + 1]))
    return found


def sql_mutants(root, name, definitions):
    """Those of a function or view of the migrations."""
    for path, line, definition in definitions:
        sql = without_comments(definition)
        for kind, what, after in (*sql_mutations(sql, False), *if_mutations(IF, sql)):
            same = next((i for i, (a, b) in enumerate(zip(sql, after)) if a != b), 0)
            yield Mutant(str(path.relative_to(root)), line + sql.count("\n", 0, same), name, kind, what,
                         sql=(definition, after))


def sql_header(mutants):
    """What the copy's embedded SQL is switched by."""
    def raw(text):
        return f'R"mutantsql({text})mutantsql"'
    rows = []
    for mutant in mutants:
        if mutant.sql:
            parts = mutant.file.split("/")  # src/databases/postgres/migrations/consumer/…
            rows.append(f'    {{{mutant.number}, "{parts[4]}/{parts[2]}/", {raw(mutant.sql[0])}, {raw(mutant.sql[1])}}},\n')
    return SQL_HEADER.format(rows="".join(rows))


def constants(mask, name):
    """(begin, behind the "=", end, where "constexpr" begins) of each text of that name at the beginning of a line."""
    for match in re.finditer(r"^(?:inline |static )*(?:(constexpr) )?(?:const )?(?:char\s*\*\s*(?:const )?|std::string_view |std::string )"
                             + re.escape(name) + r" =", mask, re.MULTILINE):
        others = [found for found in re.finditer(r"\bconstexpr\b[^;{]*=[^;]*\b" + re.escape(name) + r"\b", mask)]
        if not others:
            yield match.start(), match.end(), mask.index(";", match.end()), match.start(1)


class Function:
    """Collects the edits of one definition."""

    def __init__(self, file, name, text, mask, begin, body, end):
        self.file, self.name, self.text, self.mask = file, name, text, mask
        self.begin, self.body, self.end = begin, body, end
        self.edits = []
        self.constant = False

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
            if (self.mask[match.start()] == " " and not match[0].startswith("R")) \
                    or (not self.constant and re.search(r"\b(?:constexpr|static_assert)\b", statement)) \
                    or re.match(r"\w", self.text[match.end():]) or "@" in match[0]:
                continue
            goes_on = re.match(r"\s*\+", self.text[match.end():]) is not None
            of_lua = match[0].startswith('R"lua(')
            if not of_lua and not SQL.search(match[0]):
                continue
            sql = joined(match[0])
            for kind, what, sql in if_mutations(LUA_IF, sql) if of_lua else sql_mutations(sql, goes_on):
                self.add(kind, match.start(), match.end(), f'(OUTBOX_MUTANT(@) ? "{sql}" : ', ")")
                self.edits[-1].mutant.code = what
        for match in NAMED_OPERAND.finditer(self.text, self.body, self.end):
            self.add("does not count in SQL", *match.span(1), "::outbox::mutants::operand(!OUTBOX_MUTANT(@), ", ")")

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
        for match in SEPARATES.finditer(self.text, self.body, self.end):
            self.add("left out", *match.span(1), "if (!OUTBOX_MUTANT(@)) { ", "; }")
        if not self.edits:
            for match in LEAVES_OUT.finditer(self.mask, self.body, self.end):
                whole = all(match[1].count(a) == match[1].count(b) for a, b in ("()", "{}", "[]"))
                # Not the rest of a statement that begins a line before.
                begins = re.search(r"(?:[;{}):]|\belse)\s*$", self.mask[:match.start()])
                if whole and begins and not match[1].startswith(KEYWORDS):
                    self.add("left out", match.start(1), match.end(1), "if (!OUTBOX_MUTANT(@)) { ", "; }")
        return self.edits


def methods(mask, name):
    """Like definitions, of all that a class has."""
    if not re.search(r"\b(?:class|struct)\s+" + re.escape(name) + r"\b[^;()]*\{", mask) and f"{name}::" not in mask:
        return
    scopes = [mask[m.end():closing(mask, m.end() - 1)]
              for m in re.finditer(r"\b(?:class|struct)\s+" + re.escape(name) + r"\b[^;{()]*\{", mask)]
    simple = set(re.findall(re.escape(name) + r"::(\w+)\s*\(", mask))
    simple.update(found for scope in scopes for found in re.findall(r"(?<![\w.>:~])(\w+)\s*\(", scope))
    for method in sorted(simple):
        yield from definitions(mask, f"{name}::{method}")


class Sources:
    def __init__(self, root):
        self.texts = {path: path.read_text() for folder in ("src", "apps")
                      for path in sorted((root / folder).rglob("*")) if path.suffix in (".cpp", ".h")}
        self.masks = {path: masked(text) for path, text in self.texts.items()}

    def functions(self, name):
        """[(path, (begin, body, end)), ...] of "Class::method", "namespace::function", "function" or "Class"."""
        scope, _, simple = name.rpartition("::")
        scope = scope.rpartition("::")[2]
        files = [path for path, text in self.texts.items() if simple in text]
        places = [(path, place) for of_any_class in (False, True) for path in files
                  for place in definitions(self.masks[path], name, of_any_class)]
        # A name that stands alone is a function's, or where there is none a method's.
        if any(self.masks[path][place[0]:].startswith(name) for path, place in places):
            places = [(path, place) for path, place in places
                      if self.masks[path][place[0]:].startswith(simple) or "::" in name]
        if not places and scope:
            inside = re.compile(r"\bnamespace\s+(?:\w+::)*" + re.escape(scope) + r"\b")
            places = [(path, place) for path in files if inside.search(self.masks[path])
                      for place in definitions(self.masks[path], simple)]
        if not places and simple[0].isupper():
            places = [(path, place) for path in files for place in methods(self.masks[path], simple)]
        return list(dict.fromkeys(places))

    def edits(self, root, name):
        """{file: [Edit, ...]} of what a name stands for."""
        found = collections.defaultdict(list)
        for path, place in self.functions(name):
            function = Function(str(path.relative_to(root)), name, self.texts[path], self.masks[path], *place)
            found[function.file] += function.find()
        for path, mask in self.masks.items() if re.fullmatch(r"k[A-Z]\w*", name) else ():
            for begin, body, end, constant in constants(mask, name):
                text = Function(str(path.relative_to(root)), name, self.texts[path], mask, begin, body, end)
                text.constant = True
                text.find_sql()
                if text.edits and constant >= 0:
                    alone = mask[begin:constant].strip() == ""
                    found[text.file].append(Edit(constant, constant + len("constexpr"), "static /* " if alone else "/* ",
                                                 " */", None))
                found[text.file] += text.edits
        return found


def find(root, names):
    """{file: [Edit, ...]}, and [Mutant, ...] of the migrations. `names`: of functions, "Class::method",
    "namespace::function" or "function", of classes, of texts, of what migrations define."""
    sources = Sources(root)
    migrations = sql_definitions(root)
    edits, of_migrations = {}, []
    for name in names:
        for file, found in sources.edits(root, name).items():
            known = {(edit.begin, edit.end, edit.mutant and edit.mutant.kind, edit.before) for edit in edits.get(file, ())}
            edits.setdefault(file, []).extend(
                edit for edit in found
                if (edit.begin, edit.end, edit.mutant and edit.mutant.kind, edit.before) not in known)
        of_migrations += sql_mutants(root, name, migrations.get(name, ()))
    return edits, of_migrations


def rewritten(text, edits):
    """The text with all of its mutations in it; they may stand one in another."""
    inserts = []
    for edit in edits:
        number = str(edit.mutant.number) if edit.mutant else ""
        width = edit.end - edit.begin
        inserts.append((edit.begin, 1, -width, edit.before.replace("@", number)))
        inserts.append((edit.end, 0, width, edit.after))
    out, last = [], 0
    for place, _, _, inserted in sorted(inserts, key=lambda insert: insert[:3]):
        out += [text[last:place], inserted]
        last = place
    return "".join(out) + text[last:]
