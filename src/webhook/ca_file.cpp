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
struct FreeAll {
    void operator()(STACK_OF(X509_INFO) * all) const { sk_X509_INFO_pop_free(all, X509_INFO_free); }
};

}  // namespace

Status check_ca_file(const std::string& path) {
    if (path.empty()) return {};
    const auto invalid = [&](const std::string& why) {
        return Status(ErrorCode::kConfigInvalid, Advice::kRetryDestination,
                      "webhook.ca_file " + to_printable(path) + ": " + why);
    };
    const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "re"));
    if (!file) return invalid(std::generic_category().message(errno));
    // As curl reads it, to which a part that is broken is the whole.
    const std::unique_ptr<STACK_OF(X509_INFO), FreeAll> all(
        PEM_X509_INFO_read(file.get(), nullptr, nullptr, nullptr));
    if (!all) return invalid("a part of it cannot be read as PEM");
    int certificates = 0;
    for (int i = 0; i < sk_X509_INFO_num(all.get()); ++i) {
        certificates += sk_X509_INFO_value(all.get(), i)->x509 != nullptr ? 1 : 0;
    }
    return certificates > 0 ? Status() : invalid("it has no certificate in PEM");
}

}  // namespace outbox::webhook
