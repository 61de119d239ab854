#pragma once

#include <map>
#include <string>

namespace outbox::test {

struct HttpAnswer {
    int status = 0;
    std::string body;
    std::map<std::string, std::string> headers;  // names in lower case
};

// One request on a connection of its own, up to 60 s; `headers` are whole lines. Throws
// std::runtime_error when no answer comes.
HttpAnswer http(int port, const std::string& method, const std::string& target,
                const std::string& body = {}, const std::string& headers = {});

// Sends these bytes as they are and reads one answer.
HttpAnswer http_raw(int port, const std::string& bytes);

}  // namespace outbox::test
