// The dashboard as a program of its own: it works from the databases alone.
#include "dashboard.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "admin/server.h"
#include "commands.h"
#include "core/redact.h"
#include "core/utf8.h"
#include "desk.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"
#include "runtime/signals.h"

namespace outbox::app {
namespace {

constexpr std::chrono::milliseconds kLookForSignal{100};
constexpr std::chrono::seconds kGrace{5};  // for what is under way

// The database of the outbox, and the consumers'.
Status check_ways(const SourceConfig& source, const std::vector<std::string>& consumers) {
    std::vector<std::string> urls{source.url};
    urls.insert(urls.end(), consumers.begin(), consumers.end());
    for (const std::string& url : urls) {
        const std::string weakness = weakness_of_database(url);
        if (weakness.empty()) continue;
        const std::string text = "the database " + redact(url) + " " + weakness;
        if (source.require_tls) return {ErrorCode::kConfigInvalid, Advice::kStop, text};
        warn(text);
    }
    return {};
}

// One that cannot be reached is tried again while the page is open; what is wrong with the options
// or the tables is said now.
Status look(const DeskConfig& config) {
    const auto source = make_source(config.source);
    if (source.ok()) return {};
    const ErrorCode code = source.error().code;
    if (code == ErrorCode::kConnectFailed || code == ErrorCode::kConnectionLost) {
        warn(describe(source.error()) + "; the page says so until it answers");
        return {};
    }
    if (lacks_rights(source.error())) return {};
    if (config.table_named || code != ErrorCode::kNoSuchTable) return source.status();
    const auto operations = open_consumer_operations(config.source);
    return !operations.ok() || is_consumers_side_only(**operations, source.error())
               ? Status()
               : source.status();
}

}  // namespace

Result<std::function<Result<std::string>()>> token_of(const runtime::OptionValues& options) {
    std::function<Result<std::string>()> token;
    if (!options.given("admin-token-file")) return token;
    const std::string file = options.text("admin-token-file");
    if (const auto now = dashboard::read_token(file); !now.ok()) {
        return runtime::config_error(options.where("admin-token-file"), now.error().message);
    }
    token = [file] { return dashboard::read_token(file); };
    return token;
}

bool await_pages(std::vector<std::future<void>>& pages, runtime::StopSignals& signals,
                 std::chrono::milliseconds most) {
    const auto until = std::chrono::steady_clock::now() + most;
    for (const std::future<void>& page : pages) {
        while (page.wait_for(kLookForSignal) != std::future_status::ready) {
            const auto signal = signals.wait(std::chrono::milliseconds(0));
            if (signal && *signal != SIGHUP) return false;
            if (std::chrono::steady_clock::now() >= until) return false;
        }
    }
    return true;
}

int run_dashboard(const runtime::Invocation& invocation) {
    const runtime::OptionValues& options = invocation.options;
    auto source = runtime::make_source_config(invocation);
    if (!source.ok()) return report(source.error());
    const auto listen = runtime::parse_admin(options.text("listen"), options.where("listen"));
    if (!listen.ok()) return report(listen.error());
    if (listen->mode != runtime::AdminConfig::Mode::kRequired) {
        return report(runtime::config_error(options.where("listen"), "give it as HOST:PORT"));
    }
    auto token = token_of(options);
    if (!token.ok()) return report(token.error());
    DeskConfig desk{.source = *source,
                    .table_named = options.given("table"),
                    .consumer_urls = options.list("consumer-db"),
                    .blocks_key = blocks_key_of(invocation.file)};
    if (Status ways = check_ways(*source, desk.consumer_urls); !ways.ok()) {
        return report(ways.error());
    }
    if (Status there = look(desk); !there.ok()) return report(there.error());
    runtime::StopSignals signals;
    const bool local = admin::is_loopback(listen->host);
    const bool read_only = *token == nullptr;
    auto server = admin::AdminServer::start(
        listen->host, listen->port, {}, admin::kRequestTimeout,
        dashboard::make_site({listen->host, local, *std::move(token)}, make_desk(desk)));
    if (!server.ok()) {
        ErrorInfo error = server.error();
        error.message += "; give another address with --listen HOST:PORT";
        return report(error);
    }
    if (!local) {
        warn(std::string("other machines reach this page, in clear: put TLS in front of it, or "
                         "listen on 127.0.0.1 and come by ssh -L") +
             (read_only ? "; without --admin-token-file whoever reaches it reads events, payloads "
                          "of dead letters included"
                        : "; reading needs the token, too"));
    }
    const bool v6 = listen->host.find(':') != std::string::npos;
    std::cout << "http://" << (v6 ? "[" + listen->host + "]" : listen->host) << ":"
              << (*server)->port() << "/\n"
              << (read_only ? "nothing can be changed here: that needs --admin-token-file\n"
                            : "changes need the token of --admin-token-file\n")
              << std::flush;
    while (true) {
        const auto signal = signals.wait(kLookForSignal);
        if (signal && *signal != SIGHUP) break;
    }
    std::vector<std::future<void>> pages;
    pages.push_back(admin::AdminServer::let_go(*std::move(server)));
    if (await_pages(pages, signals, kGrace)) return runtime::kExitOk;
    warn("a database has not answered what the page asked; outbox_audit says what was changed");
    std::_Exit(runtime::kExitFailed);
}

}  // namespace outbox::app
