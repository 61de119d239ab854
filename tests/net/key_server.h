#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {

// Variables of the environment of this process and its children, while this lives; then those that
// were there before. "" unsets one.
class Variables {
  public:
    explicit Variables(const std::map<std::string, std::string>& values);
    Variables(const std::string& name, const std::string& value);
    ~Variables();
    Variables(const Variables&) = delete;
    Variables& operator=(const Variables&) = delete;

  private:
    std::map<std::string, std::string> former_;
};

// key_server.py, until this goes; what AWS' variables say of other sources of keys is unset.
class KeyServer {
  public:
    // With TLS where there is a certificate; it can be told and says nothing then.
    explicit KeyServer(const std::string& certificate = {});
    [[nodiscard]] std::string url(const std::string& path = "/") const;
    [[nodiscard]] int port() const { return port_; }
    void set(const std::string& name, const std::string& value) const;
    void reset() const;
    // What it was asked so far, as a JSON list; and how often.
    [[nodiscard]] std::string seen() const;
    [[nodiscard]] std::size_t asked() const;

    // The environment of each provider.
    [[nodiscard]] std::map<std::string, std::string> web_identity() const;
    [[nodiscard]] std::map<std::string, std::string> container() const;
    [[nodiscard]] std::map<std::string, std::string> machine() const;
    // The file of the token "web.identity.t0ken".
    [[nodiscard]] std::string token_file() const { return (folder_ / "token").string(); }

  private:
    const TemporaryFolder folder_{"keys"};
    Process process_;
    int port_ = 0;
    const Variables none_;
};

}  // namespace outbox::test
