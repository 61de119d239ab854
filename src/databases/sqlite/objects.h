#pragma once

#include <memory>
#include <string>

#include <outbox/result.h>

#include "claim/object_store.h"

namespace outbox::sqlite {

/// `sqlite:///path`: the table outbox_objects of a file that is there. The first to write makes the
/// table. Errors: kConfigInvalid.
Result<std::unique_ptr<claim::ObjectStore>> open_objects(const std::string& url);

}  // namespace outbox::sqlite
