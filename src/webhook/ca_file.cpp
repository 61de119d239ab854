#include "webhook/ca_file.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <system_error>

#include "core/utf8.h"

namespace outbox::webhook {
namespace {

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
struct FreeCertificate {
    void operator()(X509* certificate) const { X509_free(certificate); }
};

}  // namespace

Status check_ca_file(const std::string& path) {
    if (path.empty()) return {};
    const auto invalid = [&](const std::string& why) {
        return Status(ErrorCode::kConfigInvalid, Advice::kStop,
                      "webhook.ca_file " + to_printable(path) + ": " + why);
    };
    const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "re"));
    if (!file) return invalid(std::generic_category().message(errno));
    const std::unique_ptr<X509, FreeCertificate> first(
        PEM_read_X509(file.get(), nullptr, nullptr, nullptr));
    return first ? Status() : invalid("it has no certificate in PEM");
}

}  // namespace outbox::webhook
