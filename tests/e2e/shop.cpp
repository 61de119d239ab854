#include "tests/e2e/shop.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "tests/support/eventually.h"
#include "tests/support/kafka_client.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {

using namespace std::chrono_literals;

namespace {

constexpr auto kStartDeadline = 120s;
constexpr int kPartitions = 4;

// Who speaks, and who listens.
const std::map<std::string, std::vector<std::string>> kListeners{
    {"order", {"inventory", "payment", "notification"}},
    {"inventory", {"payment", "order"}},
    {"payment", {"order"}},
};

std::string side_of(const std::string& name) {
    return name.substr(0, name.rfind('-'));
}

std::string first_value(const auto& rows) {
    return rows.empty() || rows[0].empty() ? std::string() : rows[0][0].value_or("");
}

}  // namespace

const std::vector<std::string>& Shop::names() {
    static const std::vector<std::string> names{
        "order-service", "inventory-service", "payment-service", "notification-service",
        "order-relay",   "inventory-relay",   "payment-relay"};
    return names;
}

Shop::Shop(ShopOptions options) : options_(std::move(options)), port_(free_port()) {
    for (const std::string side : {"order", "inventory", "payment", "notification"})
        urls_[side] = kafka() ? shared_postgres().create_database()
                              : "sqlite://" + (folder_ / (side + ".db")).string();
    for (const auto& [side, listeners] : kListeners) {
        if (kafka()) {
            create_topic(options_.kafka, side + "-events", kPartitions);
        } else {
            write_relay_config(side, listeners);
        }
    }
    for (const std::string& name : names())
        if (name.ends_with("-service")) start(name);
    const auto prepared = [&] {
        for (const auto& [side, url] : urls_) {
            try {
                const std::string table = side == "order"          ? "orders"
                                          : side == "inventory"    ? "stock"
                                          : side == "notification" ? "mails"
                                                                   : "accounts";
                value(side, "SELECT count(*) FROM " + table);
            } catch (const std::runtime_error&) {
                return false;
            }
        }
        return true;
    };
    if (!eventually(kStartDeadline, "the services have made their tables", prepared) ||
        !eventually(kStartDeadline, "the order service listens", [&] {
            return processes_.at("order-service").stdout_text().find("listening on") !=
                   std::string::npos;
        }))
        throw std::runtime_error("the shop did not open:\n" + logs());
    for (const std::string& name : names())
        if (name.ends_with("-relay")) start(name);
}

Shop::~Shop() {
    for (auto& [name, process] : processes_) process.kill(SIGTERM);
}

void Shop::start(const std::string& name) {
    const ProcessOptions options = name.ends_with("-relay") ? relay(side_of(name)) : service(name);
    processes_.erase(name);
    processes_.emplace(name, options);
}

void Shop::kill(const std::string& name) {
    Process& process = processes_.at(name);
    process.kill(SIGKILL);
    if (!process.wait(30s)) throw std::runtime_error(name + " cannot be killed");
}

void Shop::stop(const std::string& name) {
    const ExitStatus status = processes_.at(name).stop();
    if (!(status == ExitStatus{0, 0}))
        throw std::runtime_error(name + " did not stop in order:\n" + logs());
}

ProcessOptions Shop::service(const std::string& name) const {
    const std::string side = side_of(name);
    ProcessOptions options{
        .command = {std::string(PROGRAMS) + "/" + name, "--journal",
                    (folder_ / (name + ".jsonl")).string(), "--received", (folder_ / name).string(),
                    "--events", kafka() ? "kafka://" + options_.kafka : "mailbox:"},
        .environment = {{"DATABASE_URL", url(side)}, {"PORT", std::to_string(port_)}}};
    const auto add = [&](const std::vector<std::string>& more) {
        options.command.insert(options.command.end(), more.begin(), more.end());
    };
    if (kafka()) add({"--instance", name});
    if (side == "order") add({"--order-by", options_.order_by});
    if (side == "inventory") add(options_.inventory);
    if (side == "payment") add(options_.payment);
    if (side == "notification") add({"--mails", (folder_ / "mails.jsonl").string()});
    return options;
}

ProcessOptions Shop::relay(const std::string& side) const {
    std::vector<std::string> command{std::string(PROGRAMS) + "/outbox", "relay", "--admin", "off"};
    if (kafka()) {
        command.insert(command.end(), {"--from", url(side), "--to", "kafka://" + options_.kafka});
    } else {
        command.insert(command.end(), {"--config", (folder_ / (side + "-relay.toml")).string()});
    }
    return {.command = command};
}

void Shop::write_relay_config(const std::string& side, const std::vector<std::string>& listeners) {
    std::ofstream config(folder_ / (side + "-relay.toml"));
    config << "[source]\nurl = \"" << url(side) << "\"\n";
    for (const std::string& listener : listeners)
        config << "\n[[route]]\nname = \"" << listener << "\"\nto = \"mailbox+" << url(listener)
               << "\"\n";
}

HttpAnswer Shop::post(const std::string& body, const std::string& headers) const {
    return http(port_, "POST", "/api/orders", body, headers);
}

std::string Shop::order(const std::string& user, int quantity, const std::string& amount,
                        const std::string& more) const {
    const HttpAnswer answer =
        post(R"({"user_id":")" + user + R"(","product_id":"p-1","quantity":)" +
             std::to_string(quantity) + R"(,"total_amount":)" + amount + more + "}");
    if (answer.status != 201) throw std::runtime_error(answer.body);
    return nlohmann::json::parse(answer.body).at("id");
}

HttpAnswer Shop::cancel(const std::string& order) const {
    return http(port_, "POST", "/api/orders/" + order + "/cancel");
}

HttpAnswer Shop::show(const std::string& order) const {
    return http(port_, "GET", "/api/orders/" + order);
}

std::string Shop::value(const std::string& side, const std::string& sql) const {
    if (kafka()) return first_value(Pg(url(side)).query(sql));
    return first_value(Sqlite(url(side).substr(std::string("sqlite://").size())).query(sql));
}

bool Shop::settled() const {
    for (const auto& [side, listeners] : kListeners)
        if (number(side, "SELECT count(*) FROM outbox_events") != 0) return false;
    if (!kafka()) {
        for (const auto& [side, url] : urls_)
            if (number(side, "SELECT count(*) FROM outbox_mailbox") != 0) return false;
    }
    const long long orders = number("order", "SELECT count(*) FROM orders");
    return number("order", "SELECT count(*) FROM orders WHERE status <> 'CREATED'") == orders &&
           number("notification", "SELECT count(*) FROM mails") == 2 * orders;
}

Finished Shop::verify(const std::string& side) const {
    std::vector<std::string> command{std::string(PROGRAMS) + "/outbox",
                                     "verify",
                                     "--produced",
                                     (folder_ / (side + "-service.jsonl")).string(),
                                     "--db",
                                     url(side)};
    for (const std::string& listener : kListeners.at(side))
        command.insert(
            command.end(),
            {"--received", (folder_ / (listener + "-service") / (side + ".jsonl")).string()});
    return run({.command = command});
}

// Nobody has written or received anything of its: `outbox verify` proves nothing of that.
bool Shop::said_nothing(const std::string& side) const {
    const auto is_empty = [&](const std::filesystem::path& journal) {
        std::error_code missing;
        const auto size = std::filesystem::file_size(folder_ / journal, missing);
        return missing || size == 0;
    };
    const auto& listeners = kListeners.at(side);
    return is_empty(side + "-service.jsonl") &&
           std::all_of(listeners.begin(), listeners.end(), [&](const std::string& listener) {
               return is_empty(std::filesystem::path(listener + "-service") / (side + ".jsonl"));
           });
}

bool Shop::verified() const {
    for (const auto& [side, listeners] : kListeners)
        if (!said_nothing(side) && verify(side).status.code != 0) return false;
    return true;
}

Finished Shop::audit() const {
    return run({.command = {std::string(PROGRAMS) + "/orders-audit", "--orders", url("order"),
                            "--inventory", url("inventory"), "--payments", url("payment"),
                            "--notifications", url("notification"), "--mails",
                            (folder_ / "mails.jsonl").string()}});
}

std::string Shop::logs() const {
    std::string out;
    for (const auto& [name, process] : processes_)
        out += "--- " + name + "\n" + process.stderr_text();
    for (const auto& [side, listeners] : kListeners) {
        const Finished finished = verify(side);
        out += "--- verify " + side + "\n" + finished.out + finished.err;
    }
    return out;
}

}  // namespace outbox::test
