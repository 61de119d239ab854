"""The page of what `script/bench --peers` measured: figures, goals, plots."""
import statistics

import plots

COLOURS = {"outbox keep": "#1f6feb", "outbox delete": "#58a6ff", "outboxx": "#e3792c", "Debezium tuned": "#8250df",
           "Debezium low latency": "#2da44e", "Debezium default": "#8c959f"}
OURS = ("outbox keep", "outbox delete")
BROKER_PARTS = [("relay", "#1f6feb"), ("PostgreSQL", "#e3792c"), ("Kafka", "#8c959f")]


class Spread:
    """A figure of several pairs: the middle one, the least, the most."""

    def __init__(self, kept):
        self.middle, self.least, self.most = statistics.median(kept), min(kept), max(kept)

    def words(self, form="{:,.0f}", unit=""):
        middle, least, most = (form.format(figure) for figure in (self.middle, self.least, self.most))
        return f"{middle}{unit}" + (f" ({least} to {most})" if least != most else "")


class Figures:
    def __init__(self, figures):
        self.all = figures

    def turns(self, scenario, peer):
        return self.all["runs"].get(scenario, {}).get(peer, [])

    def kept(self, scenario, peer, key):
        return [turn[key] for turn in self.turns(scenario, peer) if key in turn]

    def spread(self, scenario, peer, key):
        kept = self.kept(scenario, peer, key)
        return Spread(kept) if kept else None

    def ratio(self, scenario, ours, theirs, key):
        """Of each pair."""
        both = [mine[key] / other[key] for mine, other in zip(self.turns(scenario, ours), self.turns(scenario, theirs))
                if mine.get(key) is not None and other.get(key)]
        return Spread(both) if both else None

    def limit(self, key):
        kept = [turn[key] for turn in self.all["limits"] if key in turn]
        return Spread(kept) if kept else None

    def peers(self, scenario):
        return [name for name in COLOURS if self.kept(scenario, name, "records")]


def ratio_goals():
    """(what, scenario, ours, beside, key, sign, goal)"""
    for ours, beside, goal in (("outbox keep", "outboxx", 1.3), ("outbox keep", "Debezium tuned", 4.5),
                               ("outbox delete", "outboxx", 0.9)):
        yield "backlog, 100-row transactions", "backlog", ours, beside, "per_s", ">=", goal
    for ours in OURS:
        yield "backlog, one-row transactions", "single", ours, "outboxx", "per_s", ">=", 1.5
    for what, key in (("relay's CPU per event", "relay_cpu_s_per_million"),
                      ("all processes' CPU per event", "all_cpu_s_per_million")):
        for ours in OURS:
            yield what, "backlog", ours, "outboxx", key, "<=", 0.8
    for ours in OURS:
        yield "latency at 1,000/s, p50", "latency", ours, "Debezium low latency", "p50_ms", "<=", 0.6
        yield "latency at 1,000/s, p99", "latency", ours, "Debezium low latency", "p99_ms", "<=", 0.7


def of_itself(figures):
    """(what, ours, goal in words, reached in words, whether it is met or None)"""
    for ours in OURS:
        cores = figures.spread("latency", ours, "relay_cores")
        yield ("relay's cores at 1,000/s", ours, "< 0.12", cores.words("{:.3f}") if cores else None,
               cores and cores.middle < 0.12)
        p99 = [turn["p99_ms"] / (turn["insert_p99_ms"] + limit["kafka_alone_p99_ms"])
               for turn, limit in zip(figures.turns("latency", ours), figures.all["limits"]) if "p99_ms" in turn]
        times = Spread(p99) if p99 else None
        yield ("p99 at 1,000/s beside p99 of the INSERT + p99 of Kafka alone", ours, "<= 2x",
               times.words("{:.2f}", "x") if times else None, times and times.middle <= 2)
        again = figures.spread("kill", ours, "resumed_s")
        yield ("SIGKILL in mid-drain: delivery goes on after", ours, "< 0.3 s",
               again.words("{:.2f}", " s") if again else None, again and again.middle < 0.3)
        repeats = figures.spread("kill", ours, "repeats")
        yield ("SIGKILL in mid-drain: repeats", ours, "<= 10,000", repeats.words() if repeats else None,
               repeats and repeats.most <= 10_000)
        lost = [missing for scenario in figures.all["runs"] for missing in figures.kept(scenario, ours, "missing")]
        yield ("lost, in every turn", ours, "0", f"{sum(lost)}" if lost else None, lost and not sum(lost))
        most = [peak for scenario in figures.all["runs"] for peak in figures.kept(scenario, ours, "rss_mb")]
        yield ("memory (peak RSS), most of every turn", ours, "< 40 MB", f"{max(most):.0f} MB" if most else None,
               most and max(most) < 40)


def goals(figures):
    """Rows (what, ours, beside, goal, reached, verdict)."""
    for what, scenario, ours, beside, key, sign, goal in ratio_goals():
        ratio = figures.ratio(scenario, ours, beside, key)
        met = ratio and (ratio.middle >= goal if sign == ">=" else ratio.middle <= goal)
        yield (what, ours, beside, f"{sign} {goal}x", ratio.words("{:.2f}", "x") if ratio else None, met)
    for what, ours, goal, reached, met in of_itself(figures):
        yield what, ours, "", goal, reached, met


def verdict(reached, met):
    return "not measured" if reached is None else "met" if met else "**missed**"


def goals_as_text(figures):
    return "\n".join(f"{what:62} {ours:14} {beside:21} {goal:10} {reached or '-':24} {verdict(reached, met).strip('*')}"
                     for what, ours, beside, goal, reached, met in goals(Figures(figures)))


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


# Of each scenario: (head, key, form, whether more is better, or None where nothing is)
COLUMNS = {
    "backlog": [("events/s", "per_s", "{:,.0f}", True), ("relay's CPU s", "relay_cpu_s_per_million", "{:.2f}", False),
                ("PostgreSQL's CPU s", "server_cpu_s_per_million", "{:.2f}", False),
                ("Kafka's CPU s", "broker_cpu_s_per_million", "{:.2f}", False),
                ("all CPU s", "all_cpu_s_per_million", "{:.2f}", False), ("RSS MB", "rss_mb", "{:,.0f}", False),
                ("PSS MB", "pss_mb", "{:,.0f}", False), ("first record after s", "first_record_s", "{:.2f}", False),
                ("done behind the last record s", "finished_behind_last_record_s", "{:.1f}", None)],
    "latency": [("p50 ms", "p50_ms", "{:.2f}", False), ("p99 ms", "p99_ms", "{:.2f}", False),
                ("relay's cores", "relay_cores", "{:.3f}", False), ("all cores", "all_cores", "{:.2f}", False),
                ("RSS MB", "rss_mb", "{:,.0f}", False), ("the INSERT alone: p99 ms", "insert_p99_ms", "{:.2f}", None),
                ("events/s that the machine wrote", "written_per_s", "{:,.0f}", None)],
    "kill": [("delivery goes on after s", "resumed_s", "{:.2f}", False), ("repeats", "repeats", "{:,.0f}", False),
             ("lost", "missing", "{:,.0f}", False), ("out of order", "out_of_order", "{:,.0f}", False)]}
COLUMNS["single"] = COLUMNS["backlog"]


def best(figures, scenario, key, more):
    medians = {peer: figures.spread(scenario, peer, key).middle for peer in figures.peers(scenario)
               if figures.spread(scenario, peer, key)}
    if more is None or len(medians) < 2:
        return set()
    top = max(medians.values()) if more else min(medians.values())
    leaders = {peer for peer, median in medians.items() if median == top}
    return leaders if len(leaders) < len(medians) else set()


def scenario_table(figures, scenario):
    columns = COLUMNS[scenario]
    rows = []
    for peer in figures.peers(scenario):
        row = [peer]
        for _, key, form, more in columns:
            spread = figures.spread(scenario, peer, key)
            words = spread.words(form) if spread else "-"
            row.append(f"**{words}**" if peer in best(figures, scenario, key, more) else words)
        rows.append(row)
    return table(["", *(head for head, *_ in columns)], rows)


TITLES = {"backlog": "a backlog in 100-row transactions", "single": "a backlog in one-row transactions",
          "latency": "1,000 events/s", "kill": "SIGKILL in mid-drain"}


def losses(figures):
    """Where another one has the best figure."""
    for scenario in figures.all["runs"]:
        for head, key, form, more in COLUMNS[scenario]:
            leaders = best(figures, scenario, key, more)
            if not leaders or leaders.intersection(OURS):
                continue
            leader = leaders.pop()
            ours = [figures.spread(scenario, peer, key) for peer in OURS]
            medians = [spread.middle for spread in ours if spread]
            if medians:
                mine = max(medians) if more else min(medians)
                yield (f"{TITLES[scenario]}: {head}", leader, form.format(figures.spread(scenario, leader, key).middle),
                       form.format(mine))


def short(figure):
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}"


def draw(figures, folder):
    """The plots there is something for; yields (file, what it shows)."""
    folder.mkdir(exist_ok=True)
    pairs = f"{figures.all['pairs']} pair{'s' if figures.all['pairs'] > 1 else ''}"
    note = f"median of {pairs}; line: least to most"
    groups = []
    for scenario, name in (("backlog", "100-row transactions"), ("single", "one-row transactions")):
        rows = [(peer, COLOURS[peer], s.middle / 1000, s.least / 1000, s.most / 1000, f"{s.middle / 1000:,.0f} k/s")
                for peer in figures.peers(scenario) if (s := figures.spread(scenario, peer, "per_s"))]
        if rows:
            groups.append((name, rows))
    if groups:
        plots.bars(folder / "backlog.svg", "Draining a backlog into Kafka, events/s", note, groups)
        yield "backlog.svg", "How fast each drains a backlog"
    keys = ("relay_cpu_s_per_million", "server_cpu_s_per_million", "broker_cpu_s_per_million")
    rows = [(peer, [s.middle for s in spreads], f"{sum(s.middle for s in spreads):.1f} s")
            for peer in figures.peers("backlog")
            if all(spreads := [figures.spread("backlog", peer, key) for key in keys])]
    if rows:
        plots.stacks(folder / "cpu.svg", "CPU seconds for a million events, 100-row transactions",
                     f"medians of {pairs}", BROKER_PARTS, rows)
        yield "cpu.svg", "What a million events cost in CPU seconds, of relay, database and broker"
    rows = [(peer, COLOURS[peer], p50.middle, p99.middle, f"{short(p50.middle)} / {short(p99.middle)} ms")
            for peer in figures.peers("latency")
            if (p50 := figures.spread("latency", peer, "p50_ms")) and (p99 := figures.spread("latency", peer, "p99_ms"))]
    if rows:
        plots.pairs(folder / "latency.svg", "From the INSERT to the receipt at 1,000 events/s, ms",
                    f"medians of {pairs}, logarithmic", ("p50", "p99"), rows)
        yield "latency.svg", "Latency of each at 1,000 events a second"
    rows = [(peer, COLOURS[peer], [(x, y / 1000) for x, y in curves[-1]]) for peer in figures.peers("kill")
            if (curves := figures.kept("kill", peer, "curve"))]
    if rows:
        plots.curves(folder / "kill.svg", "SIGKILL in mid-drain, and started again at once", "the last pair",
                     ("seconds since SIGKILL", "records in the topic, thousands, repeats among them"), rows)
        yield "kill.svg", "What arrives before and after each is killed"
    rows = [(peer, COLOURS[peer], s.middle, s.least, s.most, f"{s.middle:,.0f} MB") for peer in figures.peers("backlog")
            if (s := figures.spread("backlog", peer, "rss_mb"))]
    if rows:
        plots.bars(folder / "memory.svg", "Peak memory while a backlog is drained (RSS)", note, [("", rows)])
        yield "memory.svg", "The most memory that each had"


LIMITS = [("binary COPY of the table, rows/s", "copy_per_s", "{:,.0f}"),
          ("pg_recvlogical to a file, 100-row transactions, rows/s", "recvlogical_100_per_s", "{:,.0f}"),
          ("pg_recvlogical to a file, one-row transactions, rows/s", "recvlogical_1_per_s", "{:,.0f}"),
          ("librdkafka alone, the relay's bytes and headers, records/s", "librdkafka_per_s", "{:,.0f}"),
          ("its CPU seconds for a million", "librdkafka_cpu_s_per_million", "{:.2f}"),
          ("librdkafka alone, the same without headers, records/s", "librdkafka_without_headers_per_s", "{:,.0f}"),
          ("Kafka alone at 1,000/s, p50 ms", "kafka_alone_p50_ms", "{:.2f}"),
          ("Kafka alone at 1,000/s, p99 ms", "kafka_alone_p99_ms", "{:.2f}")]


def count_words(rows):
    return f"{rows / 1e6:g} million" if rows >= 1_000_000 else f"{rows:,}"


def machine_words(figures):
    machine, versions = figures.all["machine"], figures.all["versions"]
    librdkafka = figures.all["limits"][0]["librdkafka"] if figures.all["limits"] else None
    return (f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, {machine['system']}, Linux "
            f"{machine['kernel']}, servers' files on {machine['file_system']}; "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
            + (f", librdkafka {librdkafka}" if librdkafka else "") + ".")


def failures(figures):
    for scenario, of_peers in figures.all["runs"].items():
        for peer, kept in of_peers.items():
            for number, turn in enumerate(kept, 1):
                if "failed" in turn:
                    yield f"- {TITLES[scenario]}, {peer}, pair {number}: {turn['failed']}"


def write(all_figures, page):
    figures = Figures(all_figures)
    folder = page.with_suffix("")
    page.parent.mkdir(parents=True, exist_ok=True)
    images = "\n\n".join(f"![{words}]({folder.name}/{name})" for name, words in draw(figures, folder))
    warm_up, seconds = all_figures["times"]
    quick = ("\n\n**Made by `--quick`: it shows that everything works, not how fast it is.**" if all_figures["quick"]
             else "")
    lost = table(["", "best", "its figure", "the better of ours"], losses(figures)) if list(losses(figures)) else \
        "Nowhere in this run."
    failed = "\n".join(failures(figures))
    scenarios = "\n\n".join(f"### {TITLES[scenario][0].upper()}{TITLES[scenario][1:]}\n\n{INTROS[scenario]}\n\n"
                            f"{scenario_table(figures, scenario)}"
                            for scenario in TITLES if figures.peers(scenario))
    limits = table(["what", "figure"], [[what, s.words(form)] for what, key, form in LIMITS if (s := figures.limit(key))])
    sessions = all_figures.get("sessions", 1)
    in_one_run = "in one run" if sessions == 1 else f"in {sessions} runs on one machine, each pair of turns in one of them"
    page.write_text(PAGE.format(in_one_run=in_one_run,
        quick=quick, machine=machine_words(figures), pairs=all_figures["pairs"], rows=count_words(all_figures["rows"]),
        warm_up=warm_up, seconds=seconds, images=images, lost=lost, scenarios=scenarios, limits=limits,
        failed=f"\n## Turns that failed\n\n{failed}\n" if failed else "",
        goals=table(["what", "ours", "beside", "goal", "reached: median (least to most)", ""],
                    [[what, ours, beside, goal, reached or "", verdict(reached, met)]
                     for what, ours, beside, goal, reached, met in goals(figures)])), encoding="utf-8")


INTROS = {
    "backlog": "CPU in seconds for a million events, from the first record on until nothing is left to be done (a JVM's "
               "start is none of it; what its compiler does later is). *Done behind the last record*: until all rows "
               "are removed (`delete`) or recorded (`keep`); the others leave their rows to you.",
    "single": "The same events, each in a transaction of its own.",
    "latency": "From the INSERT (before its commit) to the receipt by a consumer. *All cores*: relay, PostgreSQL with "
               "its eight writers' sessions, Kafka.",
    "kill": "Killed when 40 % of the events are there, started again at once. *Out of order*: events that came first "
            "behind a later one of their key."}

PAGE = """# Beside other relays

Written by `script/bench --peers`; a word changed here is lost with the next run. Our relay, [Debezium Server](https://debezium.io) and
[outboxx](https://github.com/lukashes/outboxx) on one PostgreSQL and one Kafka, {in_one_run}, in turns, pairs of turns: {pairs}; {rows} events to a backlog.{quick}

```
script/bench --peers --outboxx PATH --page docs/peers.md
```

The machine: {machine} Relay, both servers, the writers and the reader share it. Ours and outboxx drain once before anything counts, so that the broker
has compiled what it runs. Compare figures of one run only: machines are noisy.

{images}

## Goals

A ratio is that of two turns of the same pair: the median of the pairs, the least and the most of them.

{goals}

## Where others are ahead

{lost}

## Figures

Median of the pairs (least to most); bold: the best of its column.

{scenarios}

### What the machine allows

{limits}
{failed}
## How it is measured

| | |
| --- | --- |
| events | `id`, aggregate type and id (10,000 keys), event type, a jsonb payload of some 200 bytes; the same ones for all, numbered in the payload |
| table | ours: `outbox_events` as `outbox migrate` makes it. The others: the table of Debezium's documentation, which has fewer columns |
| a backlog | relay stopped, rows inserted, relay started; the rate is that between 10 % and 90 % of the records as they arrive in the topic (12 partitions), looked at each 20 ms from outside |
| read back | after each turn every record: each number of an event must be there; those that are there again are the repeats |
| turns | a fresh database, topic and process for each; every other pair begins with the last one |
| latency | pgbench, 1,000 transactions/s, 8 connections, {warm_up} s to warm up, then {seconds} s |
| ours | as it comes: no option but the addresses; format `raw` with its five headers, ledger, lanes, retries, dead letters, metrics |
| Debezium tuned | `max.batch.size=8192 max.queue.size=32768 poll.interval.ms=10`, offsets each second, producer `linger.ms=5 batch.size=262144 buffer.memory=134217728`, `-Xmx2g -XX:+UseParallelGC`, headers without schemas |
| Debezium low latency | the same with `poll.interval.ms=1` and `linger.ms=0` |
| Debezium default | what is its own default; both outbox event router and `acks=all`, idempotent, as in the other two |
| outboxx | its example's configuration, inserts alone. It has one envelope and no headers, routing, retries or dead letters, and reads the log only; batches and linger are not to be set |

The others are started once before the rows are written, so that the server keeps its log for them. To build outboxx see its own README; it is left out where no path is given.
Every figure of every turn is in `build/peers.json`; `script/bench --peers --figures build/peers.json --page docs/peers.md` writes the page again.
"""
