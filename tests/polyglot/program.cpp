#include "tests/polyglot/program.h"

#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/support/kafka_client.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"

namespace outbox::test {

namespace {

using namespace std::chrono_literals;

// script/setup has built them before; a first build fetches and compiles the libraries.
constexpr std::chrono::minutes kBuildDeadline{15};
constexpr int kExitBySigterm = 143;
constexpr int kPartitions = 12;

const std::string kSource = OUTBOX_SOURCE_DIR;

void build(const std::string& language) {
    static std::set<std::string> built;
    if (built.contains(language)) return;
    const Finished done = run({{kSource + "/script/polyglot", language}}, kBuildDeadline);
    if (done.status != ExitStatus{0, 0}) {
        throw std::runtime_error("script/polyglot " + language + " failed:\n" + done.err);
    }
    built.insert(language);
}

}  // namespace

Program::Program(const std::string& language)
    : language_(language), executable_(kSource + "/build/polyglot/" + language + "/run") {
    build(language);
}

ProcessOptions Program::command(const std::string& name,
                                std::map<std::string, std::string> environment) const {
    ProcessOptions made;
    made.command = {executable_, name};
    made.environment = std::move(environment);
    return made;
}

ProcessOptions Program::emit(const std::string& database, const std::string& lines) const {
    ProcessOptions made = command("emit", {{"DATABASE_URL", database}});
    made.input = lines;
    return made;
}

ProcessOptions Program::consume(const std::string& database, const std::string& topic,
                                const std::string& group) const {
    return command("consume", {{"DATABASE_URL", database},
                               {"KAFKA_BROKERS", shared_kafka().bootstrap()},
                               {"KAFKA_TOPIC", topic},
                               {"KAFKA_GROUP", group}});
}

ProcessOptions Program::receive(const std::string& database) const {
    return command("receive", {{"DATABASE_URL", database}});
}

ProcessOptions Program::serve(const std::string& database) const {
    return command("serve", {{"DATABASE_URL", database}, {"PORT", "0"}});
}

Shop::Shop() : url_(shared_postgres().with_password(shared_postgres().create_database())) {
    static int shops = 0;
    topic_ = "order-events-" + std::to_string(++shops);
    create_topic(shared_kafka().bootstrap(), topic_, kPartitions);
    migrate(url_, {}, "shop.sql");
    Pg database(url_);
    database.exec("INSERT INTO customers VALUES ('alice')");
    // Published events leave the table; this keeps what was committed, and with it only.
    database.exec(
        "CREATE TABLE journal (id text, order_id text);"
        "CREATE FUNCTION note_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO public.journal VALUES (NEW.id, NEW.aggregate_id); RETURN NEW; END $$;"
        "CREATE TRIGGER note_event AFTER INSERT ON outbox_events FOR EACH ROW "
        "EXECUTE FUNCTION note_event()");
    relay_.emplace(
        outbox_.start_relay({"--from", url_, "--to", "kafka://" + shared_kafka().bootstrap(),
                             "--topic-template", topic_, "--admin", "off"}));
}

void Shop::migrate(const std::string& url, const std::vector<std::string>& more,
                   const std::string& own_tables) {
    std::vector<std::string> arguments{"migrate", "--db", url};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished done = outbox_.run(arguments);
    if (done.status.code != 0) throw std::runtime_error("outbox migrate: " + done.err);
    Pg(url).exec(read_file(kSource + "/examples/polyglot/" + own_tables));
}

std::string Shop::new_billing() {
    std::string url = shared_postgres().with_password(shared_postgres().create_database());
    migrate(url, {"--only", "consumer"}, "billing.sql");
    return url;
}

std::vector<std::string> Shop::events_of(const std::string& order) {
    std::vector<std::string> ids;
    for (const auto& row :
         Pg(url_).query("SELECT id FROM journal WHERE order_id = " + literal(order))) {
        ids.push_back(row[0].value());
    }
    return ids;
}

Told told(const Process& consumer, const std::string& prefix) {
    Told result;
    std::istringstream lines(consumer.stdout_text());
    std::string what;
    std::string order;
    int version = 0;
    while (lines >> what >> order >> version) {
        if (!order.starts_with(prefix)) continue;
        if (what == "applied") result.applied[order].push_back(version);
        if (what == "repeat") result.repeats[order].push_back(version);
    }
    return result;
}

std::string order_lines(const std::string& prefix, int orders, int count) {
    std::string lines;
    for (int cents = 1; cents <= count; ++cents) {
        for (int order = 1; order <= orders; ++order) {
            lines += prefix + std::to_string(order) + " alice " + std::to_string(cents) + "\n";
        }
    }
    return lines;
}

std::string literal(const std::string& name) {
    return "'" + name + "'";
}

bool ends_in_order(Process& process) {
    const ExitStatus ended = process.stop();
    return ended == ExitStatus{0, 0} || ended == ExitStatus{kExitBySigterm, 0};
}

}  // namespace outbox::test
