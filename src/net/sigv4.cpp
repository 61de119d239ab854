#include "net/sigv4.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "core/ascii.h"
#include "core/url.h"
#include "net/sha256.h"

namespace outbox::net {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr std::string_view kScopeEnd = "aws4_request";

std::string hmac(std::string_view key, std::string_view text) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
    unsigned size = 0;
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data(), &size);
    return {reinterpret_cast<const char*>(out.data()), size};
}

bool is_unreserved(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_' ||
           c == '~';
}

std::string encode(std::string_view text, std::string_view also) {
    std::string out;
    for (const char c : text) {
        if (is_unreserved(c) || also.find(c) != std::string_view::npos) {
            out += c;
        } else {
            append_percent(c, out);
        }
    }
    return out;
}

struct Target {
    std::string host;  // as the header has it
    std::string_view path;
    std::string_view query;
};

Target read_target(std::string_view url) {
    Target target;
    const std::size_t colon = url.find("://");
    if (colon == std::string_view::npos) return target;
    const std::string_view default_port = url.starts_with("https:") ? ":443" : ":80";
    url.remove_prefix(colon + 3);
    url = url.substr(0, url.find('#'));
    const std::size_t end = std::min(url.find_first_of("/?"), url.size());
    std::string_view host = url.substr(0, end);
    if (host.ends_with(default_port)) host.remove_suffix(default_port.size());
    target.host = host;
    url.remove_prefix(end);
    const std::size_t question = url.find('?');
    target.path = url.substr(0, question);
    if (target.path.empty()) target.path = "/";
    if (question != std::string_view::npos) target.query = url.substr(question + 1);
    return target;
}

std::string canonical_query(std::string_view query) {
    HttpHeaders pairs;
    while (!query.empty()) {
        const std::string_view one = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(query.size(), one.size() + 1));
        if (one.empty()) continue;
        const std::size_t equals = one.find('=');
        const std::string_view value =
            equals == std::string_view::npos ? std::string_view() : one.substr(equals + 1);
        pairs.emplace_back(encode(percent_decode(one.substr(0, equals)), ""),
                           encode(percent_decode(value), ""));
    }
    std::sort(pairs.begin(), pairs.end());
    std::string out;
    for (const auto& [name, value] : pairs) {
        if (!out.empty()) out += '&';
        out.append(name).append("=").append(value);
    }
    return out;
}

// Without blanks at the ends; those within become one.
std::string canonical_value(std::string_view value) {
    std::string out;
    bool blank = false;
    for (const char c : value) {
        const bool now = c == ' ' || c == '\t' || c == '\n' || c == '\r';
        if (!now && blank && !out.empty()) out += ' ';
        if (!now) out += c;
        blank = now;
    }
    return out;
}

// In order of their names, which are in lower case; the values of equal names in one.
HttpHeaders canonical_headers(const HttpHeaders& headers, const HttpHeaders& added,
                              std::string_view host) {
    HttpHeaders all;
    bool has_host = false;
    for (const HttpHeaders* list : {&headers, &added}) {
        for (const auto& [name, value] : *list) {
            std::string plain = lower(name);
            has_host = has_host || plain == "host";
            all.emplace_back(std::move(plain), canonical_value(value));
        }
    }
    if (!has_host) all.emplace_back("host", host);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    HttpHeaders merged;
    for (auto& one : all) {
        if (!merged.empty() && merged.back().first == one.first) {
            merged.back().second.append(",").append(one.second);
        } else {
            merged.push_back(std::move(one));
        }
    }
    return merged;
}

// "20150830T123600Z"
std::string time_text(std::chrono::system_clock::time_point time) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    std::array<char, 32> text{};
    return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts)};
}

}  // namespace

HttpHeaders sign(const SigV4& who, std::string_view method, std::string_view url,
                 const HttpHeaders& headers, std::string_view body,
                 std::chrono::system_clock::time_point now) {
    const Target target = read_target(url);
    if (target.host.empty()) return {};
    const bool is_s3 = who.service == "s3";
    const std::string time = time_text(now + who.clock_skew);
    const std::string date = time.substr(0, 8);
    const std::string body_hash = sha256_hex(body);

    HttpHeaders added{{"X-Amz-Date", time}};
    if (!who.session_token.empty()) added.emplace_back("X-Amz-Security-Token", who.session_token);
    if (is_s3) added.emplace_back("X-Amz-Content-Sha256", body_hash);

    std::string lines;
    std::string names;
    for (const auto& [name, value] : canonical_headers(headers, added, target.host)) {
        lines.append(name).append(":").append(value).append("\n");
        if (!names.empty()) names += ';';
        names += name;
    }
    // S3 alone takes the path as it is sent.
    const std::string path = is_s3 ? std::string(target.path) : encode(target.path, "/");
    const std::string request = std::string(method) + "\n" + path + "\n" +
                                canonical_query(target.query) + "\n" + lines + "\n" + names + "\n" +
                                body_hash;
    const std::string scope =
        date + "/" + who.region + "/" + who.service + "/" + std::string(kScopeEnd);
    const std::string text =
        std::string(kAlgorithm) + "\n" + time + "\n" + scope + "\n" + sha256_hex(request);
    const std::string key =
        hmac(hmac(hmac(hmac("AWS4" + who.secret_key, date), who.region), who.service), kScopeEnd);
    added.emplace_back("Authorization", std::string(kAlgorithm) + " Credential=" + who.access_key +
                                            "/" + scope + ", SignedHeaders=" + names +
                                            ", Signature=" + hex(hmac(key, text)));
    return added;
}

}  // namespace outbox::net
