#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace outbox::postgres {

/// One of the servers that a URL names, as libpq's parameters are.
struct Host {
    std::string host;
    std::string hostaddr;
    std::string port;
};

/// The hosts of a URL that libpq can read, in its order; but those that gave no answer of late, or
/// were refused, to or by anybody in this process, come last. Empty: it names one or none, or
/// leaves the choice among several to libpq (`target_session_attrs=prefer-standby`). Thread-safe.
[[nodiscard]] std::vector<Host> hosts_of(const std::string& url);
/// What a URL says of where its servers are, with all that a pooler chooses one by; empty: nothing.
[[nodiscard]] std::string address_of(const std::string& url);
/// Whether it gave an answer when it was asked last. Thread-safe.
void note_answer(const Host& host, bool answered);
/// It answers, and is not the server that is meant: an old primary that came back beside the new
/// one. Thread-safe.
void note_refused(const Host& host);

}  // namespace outbox::postgres
