// A preflight: what a relay with these options would meet, and what would mend it.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ratio>
#include <set>

#include "commands.h"
#include "core/redact.h"
#include "core/utf8.h"
#include "look.h"
#include "net/certificate_dates.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;
using runtime::RelayConfig;
using enum spi::Finding::Grade;
using Findings = std::vector<spi::Finding>;

constexpr std::int64_t kSecondsPerDay = 86'400;
constexpr std::int64_t kSoonDays = 21;  // what renews certificates does so a month before

// What is older than a consumer's floor is quarantined by its inbox, never applied.
struct Oldest {
    std::int64_t waiting_us = 0;  // 0: nothing waits
    std::int64_t dead_us = 0;
    std::vector<TopicReport> topics = {};  // which may hold as much as they keep
};

std::int64_t now_us() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

Oldest oldest_events(spi::Source& source, const SourceConfig& config) {
    Oldest oldest;
    const auto recorder = source.open_recorder();
    const auto stats = recorder.ok() ? (*recorder)->stats() : recorder.status();
    if (stats.ok() && stats->backlog > 0) {
        const std::chrono::duration<double> age(stats->oldest_age_s);
        oldest.waiting_us =
            now_us() - std::chrono::duration_cast<std::chrono::microseconds>(age).count();
    }
    const auto operations = open_operations(config, source.table_name());
    if (!operations.ok()) return oldest;
    const auto dead = (*operations)->oldest_dead_us();
    if (dead.ok()) oldest.dead_us = *dead;
    return oldest;
}

std::string kept_text(const TopicReport& topic) {
    if (!topic.kept) return "for ever";
    return "for " + age_text(std::chrono::duration<double>(*topic.kept).count());
}

// Those whose names the configuration says; others come with the events.
std::vector<TopicReport> look_at_topics_of(const RelayConfig& config, Findings& findings) {
    std::vector<TopicReport> all;
    for (const runtime::RouteConfig& route : config.routes) {
        const auto topics = look_at_topics(config, route);
        if (!topics.ok()) continue;  // `look_around` has said that it cannot be reached
        for (const TopicReport& topic : *topics) {
            const std::string where = "topics: route " + route.name + ": ";
            if (!topic.trouble.empty()) {
                findings.push_back({kWarn, where + topic.trouble, {}});
            } else {
                findings.push_back({kOk,
                                    where + topic.name + " (partitions: " +
                                        with_commas(static_cast<std::int64_t>(topic.partitions)) +
                                        ") keeps records " + kept_text(topic),
                                    {}});
            }
            all.push_back(topic);
        }
    }
    return all;
}

// Who lags, or reads a topic anew, finds what it keeps.
void look_at_retention(const ConsumerInfo& consumer, const std::string& where,
                       const std::vector<TopicReport>& topics, Findings& findings) {
    for (const TopicReport& topic : topics) {
        if (!topic.kept) continue;
        const std::int64_t begins =
            now_us() - std::chrono::duration_cast<std::chrono::microseconds>(*topic.kept).count();
        if (begins >= consumer.floor_us) continue;
        findings.push_back(
            {kWarn,
             "retention: " + where + ": consumer " + consumer.name +
                 " has forgotten the ids from before " + time_text(consumer.floor_us) +
                 ", and topic " + topic.name + " keeps records " + kept_text(topic) +
                 ": one of before that, read late or again, is quarantined as OB_QUARANTINED. Keep "
                 "ids for longer than records (outbox prune --inbox-retention)",
             {}});
    }
}

void look_at_floor(const ConsumerInfo& consumer, const std::string& where, const Oldest& oldest,
                   Findings& findings) {
    const auto before = [&](std::int64_t at_us) { return at_us != 0 && at_us < consumer.floor_us; };
    if (!before(oldest.waiting_us) && !before(oldest.dead_us)) return;
    const bool waiting = before(oldest.waiting_us);
    findings.push_back(
        {kWarn,
         "retention: " + where + ": consumer " + consumer.name +
             " has forgotten the ids from before " + time_text(consumer.floor_us) +
             ", and the oldest " + (waiting ? "event that waits" : "dead letter") + " is of " +
             time_text(waiting ? oldest.waiting_us : oldest.dead_us) +
             ": it would be quarantined as OB_QUARANTINED. Keep ids for longer (outbox prune "
             "--inbox-retention)",
         {}});
}

void look_at_consumers(const std::string& url, const RelayConfig& config, const Oldest& oldest,
                       Findings& findings) {
    SourceConfig of_consumer = config.source;
    of_consumer.url = url;
    const std::string where = "consumers in " + redact(url);
    const auto fail = [&](const ErrorInfo& error) {
        findings.push_back({kFail, where + ": " + describe(error), {}});
    };
    const auto operations = open_consumer_operations(of_consumer);
    if (!operations.ok()) return fail(operations.error());
    const auto there = (*operations)->has_tables();
    if (!there.ok()) return fail(there.error());
    if (!*there) {
        findings.push_back({kFail,
                            where +
                                ": their tables are missing. outbox migrate --only "
                                "consumer --db " +
                                redact(url),
                            {}});
        return;
    }
    const auto unlogged = (*operations)->unlogged();
    if (!unlogged.ok()) return fail(unlogged.error());
    for (const std::string& table : *unlogged) {
        findings.push_back({kWarn,
                            "durability: " + where + ": table " + table +
                                " is unlogged: a crash of the server empties it, and what it "
                                "remembers is forgotten: repeats are applied again. ALTER TABLE " +
                                table + " SET LOGGED",
                            {}});
    }
    const auto consumers = (*operations)->consumers();
    if (!consumers.ok()) return fail(consumers.error());
    std::string names;
    std::int64_t dead = 0;
    for (const ConsumerInfo& consumer : *consumers) {
        names.append(names.empty() ? "" : ", ").append(consumer.name);
        dead += consumer.dead;
        look_at_floor(consumer, where, oldest, findings);
        look_at_retention(consumer, where, oldest.topics, findings);
    }
    findings.push_back({kOk, where + ": " + (names.empty() ? "none yet" : names), {}});
    if (dead == 0) return;
    findings.push_back({kWarn,
                        where + ": " + with_commas(dead) +
                            (dead == 1 ? " dead letter, which blocks nothing and is"
                                       : " dead letters, which block nothing and are") +
                            " applied by nobody: outbox dead list --consumer NAME --db " +
                            redact(url),
                        {}});
}

constexpr std::string_view kRenewAtServer = "; its operator renews it there";
constexpr std::string_view kReplaceFile =
    "; replace the file by a renewed one: it is read anew at each connection";

// "valid until 2027-03-01", and how soon that is.
void judge_certificate(const std::string& what, std::int64_t until_s, std::string_view remedy,
                       Findings& findings) {
    using std::chrono::system_clock;
    const std::chrono::seconds now =
        std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch());
    const std::string day = time_text(until_s * std::micro::den).substr(0, 10);
    const std::int64_t left_s = until_s - now.count();
    if (left_s <= 0) {
        findings.push_back(
            {kWarn, "certificates: " + what + " has expired, on " + day + std::string(remedy), {}});
    } else if (left_s < kSoonDays * kSecondsPerDay) {
        findings.push_back({kWarn,
                            "certificates: " + what + " expires on " + day + ", in " +
                                age_text(static_cast<double>(left_s)) + std::string(remedy),
                            {}});
    } else {
        findings.push_back({kOk, "certificates: " + what + " is valid until " + day, {}});
    }
}

// What cannot be reached or read is said by others.
void look_at_certificates(const RelayConfig& config, Findings& findings) {
    const auto timeout = std::chrono::milliseconds(config.source.connect_timeout);
    std::set<std::string> seen;
    for (const auto& [where, use] : tls_of(config)) {
        for (const auto& [name, port] : use.servers) {
            const std::string address = name + ":" + std::to_string(port);
            if (!seen.insert(address).second) continue;
            const auto until = net::certificate_end_of({name, port}, use.prelude, timeout);
            if (until.ok()) {
                judge_certificate("the one of " + where + ", " + address + ",", *until,
                                  kRenewAtServer, findings);
            }
        }
        for (const bool own : {true, false}) {
            for (const std::string& file : own ? use.own_files : use.trusted_files) {
                if (!seen.insert(file).second) continue;
                const auto until = net::certificate_end_of_file(file, !own);
                if (until.ok())
                    judge_certificate(file + ", for " + where + ",", *until, kReplaceFile,
                                      findings);
            }
        }
    }
}

std::string_view word_of(spi::Finding::Grade grade) {
    return grade == kFail ? "problem" : grade == kWarn ? "warning" : "ok";
}

std::int64_t count(const Findings& findings, spi::Finding::Grade grade) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const spi::Finding& finding) { return finding.grade == grade; });
}

// "1 problem", "3 warnings"
std::string counted(const Findings& findings, spi::Finding::Grade grade) {
    const std::int64_t many = count(findings, grade);
    return with_commas(many) + " " + std::string(word_of(grade)) + (many == 1 ? "" : "s");
}

// "rights: user relay lacks ..." -> "rights"
std::string subject_of(const std::string& text) {
    return text.substr(0, text.find_first_of(": "));
}

void print_as_json(const Findings& findings) {
    ordered_json list = ordered_json::array();
    for (const spi::Finding& finding : findings) {
        list.push_back({{"grade", word_of(finding.grade)},
                        {"subject", subject_of(finding.text)},
                        {"text", redact(finding.text)},
                        {"fix", text_or_null(finding.sql)}});
    }
    print_json({{"ok", count(findings, kOk)},
                {"warnings", count(findings, kWarn)},
                {"problems", count(findings, kFail)},
                {"findings", std::move(list)}});
}

int mend(const Findings& findings, const runtime::Invocation& invocation,
         const RelayConfig& config) {
    const std::string url =
        invocation.options.given("fix-as") ? invocation.options.text("fix-as") : config.source.url;
    bool failed = false;
    for (const spi::Finding& finding : findings) {
        if (finding.sql.empty()) continue;
        std::cout << to_printable(finding.sql, true) << ";\n" << std::flush;
        if (invocation.options.flag("dry-run")) continue;
        const Status status = run_statement(url, config.source.connect_timeout, finding.sql);
        if (status.ok()) continue;
        failed = true;
        report(status.error());
    }
    return failed ? runtime::kExitFailed : runtime::kExitOk;
}

// What is left, on stderr: what no statement mends, and what the server took and did not do
// (a GRANT by who may not grant is a warning to it).
int tell_rest(const Findings& findings) {
    for (const spi::Finding& finding : findings) {
        if (finding.grade == kFail)
            std::cerr << "outbox: problem: " << redact(finding.text) << "\n";
    }
    return count(findings, kFail) > 0 ? runtime::kExitFailed : runtime::kExitOk;
}

Result<Findings> look_at_all(const RelayConfig& config, const std::vector<OpenWay>& open,
                             const std::vector<std::string>& consumers) {
    const auto source = make_source(config.source);
    if (!source.ok()) return source.error();
    auto findings = look_around(**source, config);
    if (!findings.ok()) return findings;
    for (const OpenWay& way : open) {
        findings->push_back({kWarn, "transport: " + way.where + " " + way.weakness, {}});
    }
    look_at_certificates(config, *findings);
    Oldest oldest = consumers.empty() ? Oldest() : oldest_events(**source, config.source);
    oldest.topics = look_at_topics_of(config, *findings);
    for (const std::string& url : consumers) look_at_consumers(url, config, oldest, *findings);
    return findings;
}

}  // namespace

int run_doctor(const runtime::Invocation& invocation) {
    const runtime::OptionValues& options = invocation.options;
    if (!options.flag("fix") && (options.flag("dry-run") || options.given("fix-as"))) {
        return report(
            runtime::config_error(options.where(options.flag("dry-run") ? "dry-run" : "fix-as"),
                                  "it goes with --fix; without that nothing is changed anyway"));
    }
    if (options.flag("fix") && options.flag("json")) {
        return report(
            runtime::config_error(options.where("json"), "--fix prints SQL; leave out one"));
    }
    const auto config = runtime::make_relay_config(invocation);
    if (!config.ok()) return report(config.error());
    const std::vector<OpenWay> open = open_ways(*config);
    if (config->source.require_tls && !open.empty()) {
        return report({ErrorCode::kConfigInvalid,
                       Advice::kStop,
                       {},
                       open.front().where + " " + open.front().weakness});
    }
    const std::vector<std::string> consumers = options.list("consumer-db");
    const auto findings = look_at_all(*config, open, consumers);
    if (!findings.ok()) return report(findings.error());
    if (options.flag("fix")) {
        const int code = mend(*findings, invocation, *config);
        if (options.flag("dry-run")) return code;
        const auto left = look_at_all(*config, open, consumers);
        if (!left.ok()) return report(left.error());
        return std::max(code, tell_rest(*left));
    }
    const bool failed = count(*findings, kFail) > 0;
    if (options.flag("json")) {
        print_as_json(*findings);
        return failed ? runtime::kExitFailed : runtime::kExitOk;
    }
    const int code = print_findings(*findings);
    std::cout << "\n" << counted(*findings, kFail) << ", " << counted(*findings, kWarn) << "\n";
    return code;
}

}  // namespace outbox::app
