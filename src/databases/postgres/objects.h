#pragma once

#include <memory>
#include <string>

#include <outbox/result.h>

#include "claim/object_store.h"

namespace outbox::postgres {

/// `postgresql://...`: the table outbox_objects of the schema where it is, else of the current one,
/// where the first to write makes it. It must belong to the current role, a superuser, or the owner
/// of database or schema. Errors: kConfigInvalid.
Result<std::unique_ptr<claim::ObjectStore>> open_objects(const std::string& url);

}  // namespace outbox::postgres
