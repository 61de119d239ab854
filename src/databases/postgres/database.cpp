#include "backend/database.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "core/sql_text.h"
#include "core/transport.h"
#include "core/url.h"
#include "databases/postgres/connection.h"
#include "databases/postgres/mailbox_writer.h"
#include "databases/postgres/objects.h"
#include "databases/postgres/receive/operator_sql.h"
#include "databases/postgres/roles.h"
#include "databases/postgres/source/history.h"
#include "databases/postgres/source/operations.h"
#include "databases/postgres/source/source.h"
#include "databases/postgres/source/trace.h"
#include "databases/postgres/webhook/store.h"

namespace outbox {
namespace {

using postgres::Mode;
using postgres::PostgresSourceConfig;

constexpr std::array<std::string_view, 2> kSchemes{"postgresql", "postgres"};

PostgresSourceConfig config_of(const SourceConfig& config) {
    PostgresSourceConfig out;
    out.url = config.url;
    out.table = config.table;
    out.mapping = config.mapping;
    out.tenants = config.tenants;
    out.default_tenant = config.default_tenant;
    out.default_tenant_given = config.default_tenant_given;
    out.owners = config.owners;
    out.after_publish = config.after_publish;
    out.connect_timeout_s = static_cast<int>(config.connect_timeout.count());
    out.make_side_tables = config.make_side_tables;
    out.mode = config.mode == "auto"     ? Mode::kAuto
               : config.mode == "stream" ? Mode::kStream
                                         : Mode::kPolling;
    return out;
}

Result<std::unique_ptr<spi::Source>> make_source(const SourceConfig& config) {
    return postgres::make_postgres_source(config_of(config));
}

Result<std::unique_ptr<Operations>> open_operations(const SourceConfig& config,
                                                    const std::string& table) {
    return postgres::open_operations(config_of(config), table);
}

Result<std::unique_ptr<EventTracer>> open_tracer(const SourceConfig& config) {
    return postgres::open_tracer(config_of(config));
}

Result<std::unique_ptr<replay::History>> open_history(const SourceConfig& config) {
    return postgres::open_history(config_of(config));
}

Result<std::unique_ptr<consumer::Sql>> open_sql(const std::string& url,
                                                std::chrono::seconds connect_timeout,
                                                const consumer::Trust& trust) {
    return consumer::open_postgres_sql(url, static_cast<int>(connect_timeout.count()), trust);
}

Status run_statement(const std::string& url, std::chrono::seconds connect_timeout,
                     const std::string& sql) {
    auto connection = postgres::Connection::open(url, static_cast<int>(connect_timeout.count()));
    return connection.ok() ? connection->execute(sql) : connection.status();
}

Result<std::string> add_access(const std::string& url, const std::string& password_file,
                               const std::string& schema) {
    std::string out = url;
    if (!password_file.empty()) out = with_parameter(out, "password_file", password_file);
    if (schema.empty()) return out;
    const auto parsed = parse_url(out);
    if (!parsed.ok()) return parsed.status();
    if (!parsed->query_value("options").empty()) {
        return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                         "the URL has options= as well; write -csearch_path there, or leave it "
                         "out"};
    }
    std::string value = "-csearch_path=";
    for (const char c : quote_identifier(schema)) {
        if (c == ' ' || c == '\\') value += '\\';
        value += c;
    }
    return with_parameter(std::move(out), "options", value);
}

// Of "name,address,/folder", as the parameters `host` and `hostaddr` have it.
bool names_remote(std::string_view list) {
    while (!list.empty()) {
        const std::string_view host = list.substr(0, list.find(','));
        if (is_remote(host)) return true;
        list.remove_prefix(std::min(list.size(), host.size() + 1));
    }
    return false;
}

std::string weakness(const std::string& url) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return {};
    // libpq connects to those that are named as parameters instead.
    if (!any_remote(parsed->authority) && !names_remote(parsed->query_value("host")) &&
        !names_remote(parsed->query_value("hostaddr"))) {
        return {};
    }
    const char* set = std::getenv("PGSSLMODE");
    std::string_view mode = parsed->query_value("sslmode", set == nullptr ? "" : set);
    if (mode.empty()) mode = "prefer";
    if (mode == "verify-full") return {};
    const bool clear = mode == "disable" || mode == "allow" || mode == "prefer";
    return std::string(clear ? "may be reached in clear" : "is reached without proof who it is") +
           " (sslmode=" + std::string(mode) +
           "): write ?sslmode=verify-full&sslrootcert=FILE (or system) in the URL";
}

// SSLRequest: its length, and 1234 and 5679 as two numbers of 16 bits (protocol 3.0).
constexpr std::string_view kSslRequest{"\0\0\0\x08\x04\xd2\x16\x2f", 8};

// 'N' where it has no TLS.
std::optional<bool> begins_tls(std::string_view said) {
    return said.empty() ? std::nullopt : std::optional(said == "S");
}

// As libpq reads it, but for its files of services.
TlsUse tls(const std::string& url) {
    constexpr std::uint16_t kPostgresPort = 5432;
    TlsUse use;
    use.prelude = {.asked = kSslRequest, .begins = begins_tls};
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return use;
    const auto parameter = [&](const char* name, const char* variable) {
        const char* given = std::getenv(variable);
        return std::string(parsed->query_value(name, given == nullptr ? "" : given));
    };
    if (parameter("sslmode", "PGSSLMODE") == "disable") return use;
    const std::string other = parameter("hostaddr", "PGHOSTADDR");
    use.servers = hosts_of(other.empty() ? parsed->authority : other, kPostgresPort);
    if (const std::string own = parameter("sslcert", "PGSSLCERT"); !own.empty()) {
        use.own_files.push_back(own);
    }
    const std::string roots = parameter("sslrootcert", "PGSSLROOTCERT");
    if (!roots.empty() && roots != "system") use.trusted_files.push_back(roots);
    return use;
}

}  // namespace

const Database& postgres_database() {
    static const Database database{
        .name = "postgres",
        .schemes = kSchemes,
        .urls = "postgresql://user@host:port/database",
        .make_source = make_source,
        .open_operations = open_operations,
        .open_tracer = open_tracer,
        .open_history = open_history,
        .open_sql = open_sql,
        .run_statement = run_statement,
        .open_mailbox = mailbox::open_postgres_mailbox,
        .open_webhook_inlet = postgres::open_webhook_inlet,
        .open_webhook_outlet = postgres::open_webhook_outlet,
        .open_objects = postgres::open_objects,
        .roles_sql = postgres::roles_sql,
        .add_access = add_access,
        .weakness = weakness,
        .tls = tls,
    };
    return database;
}

}  // namespace outbox
