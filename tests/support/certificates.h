#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/files.h"

namespace outbox::test {

// A CA of its own and what it has signed, as NAME.crt, NAME.key and, both in one, NAME.pem.
// Every error throws std::runtime_error.
class Certificates {
  public:
    Certificates();

    // `extension`: "subjectAltName=DNS:localhost" for a server; a day below 0: it has expired.
    void sign(const std::string& name, const std::string& subject, const std::string& extension,
              int days = 2);
    // Another CA, which has signed nothing.
    void make_ca(const std::string& name);

    std::string file(const std::string& name) const { return (folder_ / name).string(); }
    std::filesystem::path folder() const { return folder_.path(); }

  private:
    void must(std::vector<std::string> command);
    TemporaryFolder folder_{"keys"};
};

}  // namespace outbox::test
