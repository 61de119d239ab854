#pragma once

#include <string>

#include <outbox/spi/source.h>

#include "databases/sqlite/client.h"
#include "databases/sqlite/source/identity.h"
#include "databases/sqlite/source/table.h"

namespace outbox::sqlite {

/// Whether nobody holds the flock of this lease: proof that an owner who had it is gone.
[[nodiscard]] bool owner_is_gone(const std::string& database, const std::string& source);

/// The lease: a row with owner, epoch and end, and beside it an flock on `<file>-outbox-lease`,
/// which the kernel frees when its process dies. `locked` in the row says that the owner
/// holds the flock; only then is a free flock the proof that the owner is gone.
class SqliteLease final : public spi::LeaseStore {
  public:
    /// Tells `identity` what it wrote.
    SqliteLease(const Table& table, Identity& identity);
    /// In another table like outbox_lease, of the file at `path`.
    SqliteLease(const std::string& path, int busy_timeout_ms, std::string source,
                std::string lease_table, Identity* identity = nullptr);
    ~SqliteLease() override;

    Result<std::optional<std::uint64_t>> acquire(const std::string& owner,
                                                 std::chrono::milliseconds ttl) override;
    Result<bool> renew(std::uint64_t epoch, std::chrono::milliseconds ttl) override;
    Status release(std::uint64_t epoch) override;
    Status stand_by(const std::string& owner, std::span<const std::string> routes) override;

  private:
    Status lock_file();
    void unlock_file();
    Result<std::optional<std::uint64_t>> take(Database& database, const std::string& owner,
                                              std::chrono::milliseconds ttl);
    Result<bool> held_by_another(Database& database) const;
    [[nodiscard]] LeaseWritten written(std::uint64_t epoch) const;
    void wrote(const LeaseWritten& lease);

    const std::string source_;
    const std::string table_;  // of the lease
    const std::string path_;   // of the database
    std::string lock_path_;    // of `file_`
    Identity* const identity_;
    Session session_;
    LeaseWritten written_;
    int file_ = -1;  // Holds the flock while it is open.
};

}  // namespace outbox::sqlite
