#pragma once

#include <memory>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "databases/sqlite/source/config.h"

namespace outbox::sqlite {

/// Opens the file, looks at the table, and makes the side tables that are missing. Blocks up to
/// the busy timeout. Errors: `kConfigInvalid`, `kConnectFailed`, `kNoSuchDatabase`,
/// `kNoSuchTable`, `kTableShape`, `kNoRights`, each with its remedy.
Result<std::unique_ptr<spi::Source>> make_sqlite_source(const SqliteSourceConfig& config);

}  // namespace outbox::sqlite
