#include "backend/backends.h"

#include <algorithm>
#include <vector>

#include "core/redact.h"
#include "core/url.h"

namespace outbox {
namespace {

template <typename Backend>
Result<const Backend*> find(std::span<const Backend* const> all, const std::string& url,
                            std::string_view what) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    std::string known;
    for (const Backend* one : all) {
        if (std::ranges::find(one->schemes, parsed->scheme) != one->schemes.end()) return one;
        for (const std::string_view scheme : one->schemes) {
            known += (known.empty() ? "" : ", ") + std::string(scheme) + ":";
        }
    }
    if (std::ranges::find(left_out(), parsed->scheme) != left_out().end()) {
        return ErrorInfo{ErrorCode::kUnsupported, Advice::kStop, "",
                         "this build has no " + parsed->scheme + ": " + std::string(what) +
                             "; build it on a machine that has the client library"};
    }
    return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                     "'" + redact(url) + "': no " + std::string(what) + " is known by '" +
                         parsed->scheme + ":'; use one of " + known};
}

template <typename Backend>
std::string urls_of(std::span<const Backend* const> all) {
    std::string out;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (i > 0) out += i + 1 == all.size() ? " or " : ", ";
        out += all[i]->urls;
    }
    return out;
}

}  // namespace

Result<const Database*> find_database(const std::string& url) {
    return find(databases(), url, "database");
}

Result<const Broker*> find_broker(const std::string& url) {
    return find(brokers(), url, "destination");
}

UrlsOverDatabases::UrlsOverDatabases(std::string_view prefix,
                                     bool (*holds)(const Database& database)) {
    for (const Database* database : databases()) {
        if (!holds(*database)) continue;
        help_.append(help_.empty() ? "" : ", ").append(prefix).append(database->urls);
        for (const std::string_view scheme : database->schemes) {
            schemes_.push_back(std::string(prefix).append(scheme));
        }
    }
    views_.assign(schemes_.begin(), schemes_.end());
}

std::string weakness_of_database(const std::string& url) {
    const auto database = find_database(url);
    return database.ok() && (*database)->weakness != nullptr ? (*database)->weakness(url) : "";
}

TlsUse tls_of_database(const std::string& url) {
    const auto database = find_database(url);
    return database.ok() && (*database)->tls != nullptr ? (*database)->tls(url) : TlsUse();
}

std::string urls_of_databases() {
    return urls_of(databases());
}

std::string urls_of_brokers() {
    return urls_of(brokers());
}

}  // namespace outbox
