#include "tests/support/certificates.h"

#include <fstream>
#include <stdexcept>

#include "tests/support/process.h"

namespace outbox::test {

Certificates::Certificates() {
    make_ca("ca");
}

void Certificates::must(std::vector<std::string> command) {
    const Finished ended = run({.command = std::move(command), .working_folder = folder_.path()});
    if (ended.status.code != 0) throw std::runtime_error(ended.err);
}

void Certificates::make_ca(const std::string& name) {
    must({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
          "-nodes", "-days", "2", "-subj", "/CN=" + name, "-keyout", name + ".key", "-out",
          name + ".crt"});
}

void Certificates::sign(const std::string& name, const std::string& subject,
                        const std::string& extension, int days) {
    must({"openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
          "-subj", "/CN=" + subject, "-keyout", name + ".key", "-out", name + ".csr"});
    std::ofstream(folder_ / (name + ".ext")) << extension << "\n";
    must({"openssl", "x509", "-req", "-in", name + ".csr", "-CA", "ca.crt", "-CAkey", "ca.key",
          "-CAcreateserial", "-days", std::to_string(days), "-extfile", name + ".ext", "-out",
          name + ".crt"});
    std::ofstream(folder_ / (name + ".pem"))
        << read_file(folder_ / (name + ".key")) << read_file(folder_ / (name + ".crt"));
}

}  // namespace outbox::test
