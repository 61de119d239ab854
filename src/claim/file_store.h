#pragma once

#include <memory>
#include <string_view>

#include <outbox/result.h>

#include "claim/object_store.h"

namespace outbox::claim {

/// A folder, `file:///path`: an object is `/path/ab/NAME`, where its name begins with "ab". The
/// folder must be there, and nothing outside of it is read or written. Objects are written to
/// another name and renamed, with the disk's word for both. Errors: kConfigInvalid.
Result<std::unique_ptr<ObjectStore>> open_file_store(std::string_view url);

}  // namespace outbox::claim
