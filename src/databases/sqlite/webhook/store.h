#pragma once

#include <memory>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "databases/sqlite/client.h"
#include "webhook/store.h"

namespace outbox::sqlite {

/// They do not open the file yet. Errors: kConfigInvalid for a URL without a path, or with a
/// parameter.
Result<std::unique_ptr<webhook::Inlet>> open_webhook_inlet(const webhook::StoreConfig& config);
Result<std::unique_ptr<webhook::Outlet>> open_webhook_outlet(const webhook::StoreConfig& config);

/// The path of the file; what no file of webhooks has in its URL is refused.
Result<std::string> webhook_path(const webhook::StoreConfig& config);
/// Opens the file, which must be there, and with `make` makes the tables that it does not have.
/// `there`: it has them now.
Result<std::unique_ptr<Database>> open_webhook_file(const std::string& path, int busy_timeout_s,
                                                    bool make, bool& there);
Result<std::vector<webhook::Endpoint>> read_endpoints(Database& database);

}  // namespace outbox::sqlite
