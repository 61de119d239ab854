"""Tables, rows and options for the comparison with Debezium. Each group is one run of Debezium
Server, as its converters hold for all tables; each case of it is one table with its own router."""

import itertools
import random
import uuid

POSITION = "position bigint GENERATED ALWAYS AS IDENTITY"
BASE = ("id uuid NOT NULL, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, "
        "type varchar(255) NOT NULL, payload {payload}")


def table(payload="jsonb", more=""):
    return BASE.format(payload=payload) + (", " + more if more else "")


def text(value):
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


SEEDS = itertools.count(7)


def rows(payloads, more=None, aggregate="Order"):
    """Column -> SQL expression for each payload; `more`: column -> list of expressions."""
    rng = random.Random(next(SEEDS))
    out = []
    for i, payload in enumerate(payloads):
        row = {"id": text(str(uuid.UUID(int=rng.getrandbits(128), version=4))),
               "aggregatetype": text(aggregate), "aggregateid": text(f"o-{rng.randrange(50)}"),
               "type": text("OrderCreated"), "payload": text(payload)}
        for column, values in (more or {}).items():
            row[column] = values[i % len(values)]
        out.append(row)
    return out


UNICODE = "snow ☃, café, 𝄞, ünï \\ \" / \t\n end"
TEXTS = ["plain", "", "  ", UNICODE, "{\"a\": 1}", "{\"a\":1} x", "[]", "null", "{", "\u0001\u001f\u007f",
         "x" * 3000, None]
JSONS = ['{"a": 1}', '{"a": 1, "b": null, "c": []}', '{"n": 9007199254740993}', '"text"', "12", "null",
         '{"deep": {"er": {"x": [1, 2, 3], "y": [{"a": 1}, {"a": 2}]}}}', '{"u": "☃ 𝄞 \\"q\\" \\\\ \\n"}', "{}",
         '{"f": 1.50, "g": 1e3, "h": 0.0001, "i": 1e-7, "j": 12345678.9, "k": -0.0, "l": 1.0}']
EXPANDED = JSONS[:3] + JSONS[4:] + [
    '{"i": 2147483647, "j": 2147483648, "k": -2147483649, "l": 9223372036854775807}',
    '{"a": [[1], [2, 3]], "b": ["x", null, "y"], "c": [true, false], "d": [1.5, 2.0]}',
    '{"a": [{"x": 1}, {"x": 2}], "b": {"c": {}}, "e": ""}', '{"mixed": [1, "a"]}',
    '{"nulls": [null]}', '{"sizes": [1, 3000000000]}', '{"": 1}', '{"a b.c": {"d-e": 1}, "ä": "ö"}',
    '{"t": true, "f": false, "s": "\\u00e9\\u001f"}', "[]", '{"x": [[], [1]]}', '{"a": {"b": null}, "z": 1}',
    '{"list": [{"a": 1, "b": null}, {"a": 2, "b": null}]}', '{"list": [{"a": 1}, null]}']
# jsonb prints these as whole numbers beyond 64 bits, which end Debezium's engine.
EXPANDED_TEXT = EXPANDED + [
    '{"f": 4.9e-324, "g": 1.7976931348623157e308, "h": 2e23, "i": 1e22, "j": 1e21, "k": 123456.0, "l": 1e7}',
    "", "plain", '{"a": 1} tail', '{"a": 1, "a": 2, "b": 3, "a": 4}', '{"a": 01}', "{'a': 1}",
                            '{"a": 1e400, "b": -1e400, "c": 1e-400}', '{"a": -0}', "  {\"a\": 1}", None,
                            '{"big": ' + "1" * 1001 + "}"]

# Every type that the format knows, with values at its edges.
TYPES = {
    "c_bool": ("boolean", ["true", "false", "NULL"]),
    "c_int2": ("smallint", ["32767", "-32768", "NULL"]),
    "c_int4": ("integer", ["2147483647", "-1", "NULL"]),
    "c_int8": ("bigint", ["9007199254740993", "-9223372036854775808", "NULL"]),
    "c_float4": ("real", ["0.1", "1e10", "'NaN'", "1e-5", "16777216", "NULL"]),
    "c_float8": ("double precision", ["0.1", "1e300", "5e-324", "'Infinity'", "100", "2e23", "NULL"]),
    "c_numeric": ("numeric", ["1.50", "12345678901234567890.1234567890", "0", "-1", "100", "NULL"]),
    "c_numeric_10_2": ("numeric(10,2)", ["1.5", "-12345678.90", "0", "-0.01", "128", "-128", "NULL"]),
    "c_numeric_5": ("numeric(5)", ["12345", "-1", "NULL"]),
    "c_text": ("text", [text(UNICODE), "''", "NULL"]),
    "c_varchar": ("varchar(20)", ["'short'", "NULL"]),
    "c_char": ("char(6)", ["'ab'", "'äö'", "NULL"]),
    "c_uuid": ("uuid", ["'6F9619FF-8B86-D011-B42D-00C04FC964FF'", "NULL"]),
    "c_json": ("json", ["'{\"b\" :  1, \"a\": null}'", "NULL"]),
    "c_jsonb": ("jsonb", ["'{\"b\" :  1, \"a\": null}'", "NULL"]),
    "c_bytea": ("bytea", ["'\\x00ff10'", "''", "NULL"]),
    "c_date": ("date", ["'2026-02-28'", "'1969-12-31'", "'1582-10-04'", "NULL"]),
    "c_time": ("time", ["'23:59:59.123456'", "'00:00:00'", "NULL"]),
    "c_time_3": ("time(3)", ["'23:59:59.123'", "NULL"]),
    "c_timestamp": ("timestamp", ["'2026-02-28 12:34:56.789012'", "'1969-12-31 23:59:59.999999'", "NULL"]),
    "c_timestamp_3": ("timestamp(3)", ["'2026-02-28 12:34:56.789'", "'1969-12-31 23:59:59.999'", "NULL"]),
    "c_timestamp_0": ("timestamp(0)", ["'2026-02-28 12:34:56'", "NULL"]),
    "c_timestamptz": ("timestamptz", ["'2026-02-28 12:34:56.78+02:30'", "'2026-01-01 00:00:00Z'", "NULL"]),
    "c_timestamptz_3": ("timestamptz(3)", ["'2026-02-28 12:34:56.78Z'", "'2026-01-01 00:00:00Z'", "NULL"]),
    "c_timestamptz_0": ("timestamptz(0)", ["'2026-02-28 12:34:56Z'", "NULL"]),
    "c_enum": ("mood", ["'sad'", "'so, so'", "NULL"]),
    "c_inet": ("inet", ["'10.1.2.3'", "'10.1.2.0/24'", "'::1'", "NULL"]),
    "c_cidr": ("cidr", ["'10.1.2.0/24'", "NULL"]),
    "c_macaddr": ("macaddr", ["'08:00:2b:01:02:03'", "NULL"]),
    "c_int4range": ("int4range", ["'[1,5)'", "NULL"]),
    "c_xml": ("xml", ["'<a>1</a>'", "NULL"]),
    "c_oid": ("oid", ["4294967295", "NULL"]),
}
DEFAULTS = {
    "d_text": "text DEFAULT 'a ''b'", "d_now": "timestamptz NOT NULL DEFAULT now()",
    "d_local": "timestamp DEFAULT LOCALTIMESTAMP", "d_int": "integer DEFAULT 42", "d_bool": "boolean DEFAULT true",
    "d_numeric": "numeric(8,2) DEFAULT 1.5", "d_json": "jsonb DEFAULT '{}'", "d_uuid": "uuid DEFAULT gen_random_uuid()",
    "d_float": "double precision DEFAULT 1", "d_enum": "mood DEFAULT 'sad'", "d_sum": "integer DEFAULT (1 + 2)",
    "d_char": "char(3) DEFAULT 'x'", "d_date": "date DEFAULT '2020-02-02'", "d_big": "bigint DEFAULT 7",
    "d_null": "text DEFAULT NULL", "d_upper": "text DEFAULT upper('x')", "d_bytes": "bytea DEFAULT '\\x00'",
    "d_stamp": "timestamp DEFAULT '2020-02-02 02:02:02.5'",
}


def case(name, ddl, data, position=True, **options):
    return {"name": name, "ddl": ddl + (", " + POSITION if position else ""), "rows": data,
            "options": {key.replace("__", "."): value for key, value in options.items()}}


def placed(placement, columns):
    return ",".join(f"{column}:{placement}" for column in columns)


def common(prefix):
    """What says how the router works, whatever the converters."""
    typed = {column: values for column, (_, values) in TYPES.items()}
    declared = ", ".join(f"{column} {kind}" for column, (kind, _) in TYPES.items())
    defaulted = ", ".join(f"{column} {kind}" for column, kind in DEFAULTS.items())
    some = ["one", "two", "three", "four", "five", "six", "seven"]
    nulls = {"d_text": ["DEFAULT", "NULL"], "d_int": ["NULL"]}
    return [
        case(prefix + "plain_text", table("text"), rows(TEXTS)),
        case(prefix + "plain_jsonb", table("jsonb"), rows(JSONS + [None])),
        case(prefix + "plain_json", table("json NOT NULL"), rows(JSONS), position=False),
        case(prefix + "tombstones", table("text"), rows(TEXTS), route__tombstone__on__empty__payload="true"),
        case(prefix + "routes", table("text", "channel text"),
             rows(some, {"channel": ["'a.b'", "'Shop-Orders'", "'x'"]}), route__by__field="channel",
             route__topic__regex="([A-Za-z]+)[-.](?<rest>.*)", route__topic__replacement="to.$1.${rest}.$10"),
        case(prefix + "first_match", table("text"), rows(some, aggregate="abab"),
             route__topic__regex="a|abab", route__topic__replacement="<$0>x".replace("<", "l").replace(">", "r")),
        case(prefix + "renamed",
             "event uuid NOT NULL, agg text NOT NULL, ref bigint NOT NULL, kind text, body text, note text",
             [{"event": row["id"], "agg": "'Renamed'", "ref": str(10 ** 17 + i), "kind": "'k'",
               "body": row["payload"], "note": "'n'"} for i, row in enumerate(rows(TEXTS))],
             table__field__event__id="event", table__field__event__key="ref", table__field__event__type="kind",
             table__field__event__payload="body", route__by__field="agg",
             table__fields__additional__placement="kind:header:eventType,note:header"),
        case(prefix + "headers", table("text", declared), rows(some, typed),
             table__fields__additional__placement="type:header," + placed("header", TYPES)),
        case(prefix + "defaults", table("text", defaulted), rows(some, nulls),
             table__fields__additional__placement=placed("header", DEFAULTS)),
        case(prefix + "missing", table("text", "part integer"), rows(some, {"part": ["1", "NULL"]}),
             table__fields__additional__placement="type:header:eventType,nothing:header,part:partition",
             table__fields__additional__error__on__missing="false"),
        case(prefix + "text_id", "id text NOT NULL, aggregatetype text NOT NULL, aggregateid text, type text, payload text",
             [dict(row, id=text(f"{prefix}id-{i}"), aggregateid="NULL" if i % 2 else "'k ☃'")
              for i, row in enumerate(rows(some))]),
        case(prefix + "expand_text", table("text"), rows(EXPANDED_TEXT), table__expand__json__payload="true"),
        case(prefix + "expand_jsonb", table("jsonb"), rows(EXPANDED), table__expand__json__payload="true"),
        case(prefix + "expand_nulls", table("jsonb"), rows(EXPANDED), table__expand__json__payload="true",
             table__json__payload__null__behavior="optional_bytes"),
    ]


def enveloped(prefix):
    typed = {column: values for column, (_, values) in TYPES.items()}
    declared = ", ".join(f"{column} {kind}" for column, (kind, _) in TYPES.items())
    some = ["one", "two", "three", "four", "five", "six", "seven"]
    whole = [json for json in EXPANDED if json != "[]"]
    return [
        case(prefix + "envelope", table("text"), rows(TEXTS),
             table__fields__additional__placement="type:envelope:eventType,aggregateid:header,aggregatetype:envelope"),
        case(prefix + "envelope_types", table("jsonb", declared), rows(JSONS, typed),
             table__fields__additional__placement=placed("envelope", TYPES)),
        case(prefix + "envelope_version", table("text", "version integer"),
             rows(some, {"version": ["1", "2", "NULL"]}), table__field__event__schema__version="version",
             table__fields__additional__placement="type:envelope"),
        case(prefix + "envelope_expand", table("text"), rows(whole), table__expand__json__payload="true",
             table__fields__additional__placement="type:envelope:eventType"),
        case(prefix + "bytes", table("bytea"), rows(["\\x00ff", "\\x", None, "\\x68690a"])),
        case(prefix + "bytes_key", table("text", "k bytea, n numeric(6,2), t timestamptz"),
             rows(some, {"k": ["'\\x0102'", "NULL"], "n": ["1.5"]}), table__field__event__key="n"),
    ]


def dated(prefix):
    """Dates and times that are Java's, as texts. Debezium Server must run in UTC, as here."""
    values = {"d": ["'2026-02-28'", "'1582-10-04'", "'0900-12-31'", "NULL"],
              "c": ["'23:59:59.123456'", "'00:00:00'", "NULL"],
              "t": ["'2026-02-28 12:34:56.789012'", "'1969-12-31 23:59:59.999999'", "'12345-03-01'", "NULL"]}
    some = ["one", "two", "three", "four", "five", "six", "seven", None]
    columns = "d date, c time, t timestamp, z timestamptz(3), k timestamp(3)"
    return [
        case(prefix + "dates", table("text", columns),
             rows(some, {**values, "z": ["'2026-02-28 12:34:56.78+02:30'"], "k": ["'2026-02-28 12:34:56.789'"]}),
             table__field__event__key="k",
             table__fields__additional__placement="d:envelope,c:envelope,t:envelope,z:envelope,d:header:day"),
    ]


def without(cases, *names):
    return [one for one in cases if not one["name"].endswith(names)]


GROUPS = {
    "json": {"options": {}, "cases": common("j_") + enveloped("j_")},
    "plain": {"options": {"format.key": "simplestring", "format.value": "simplestring",
                          "format.header.schemas.enable": "false"},
              "cases": common("p_") + without(enveloped("p_"), "envelope_types")},
    "bare": {"options": {"format.schemas.enable": "false", "source.decimal.handling.mode": "string",
                         "source.time.precision.mode": "connect", "source.binary.handling.mode": "hex"},
             "cases": common("b_") + enveloped("b_")},
    "double": {"options": {"format.key": "simplestring", "source.decimal.handling.mode": "double",
                           "source.time.precision.mode": "adaptive_time_microseconds",
                           "source.binary.handling.mode": "base64-url-safe",
                           "format.value.decimal.format": "NUMERIC"},
               "cases": [one for one in common("d_") + enveloped("d_")
                         if one["name"].endswith(("headers", "envelope_types", "bytes", "plain_text"))]},
    "binary": {"options": {"format.key": "simplestring", "format.value": "binary"},
               "cases": [one for one in enveloped("y_") if one["name"].endswith("y_bytes")]},
    "dates": {"options": {"format.key": "simplestring", "format.value": "simplestring",
                          "source.time.precision.mode": "connect"},
              "cases": dated("t_")},
}
