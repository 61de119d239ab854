#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/database.h"
#include "dashboard/site.h"
#include "explain.h"

namespace outbox::app {

/// What the dashboard shows.
struct DeskConfig {
    SourceConfig source;
    bool table_named = false;  ///< An absent table is an error, whatever else the database holds.
    std::vector<std::string> consumer_urls = {};
    BlocksKey blocks_key;
    /// What the relay of this process knows beyond the database; null: there is none.
    std::function<nlohmann::ordered_json()> relay = {};
};

/// Answers what the page asks out of the databases, by what the commands have: `status`, `dead`,
/// `explain`, `saga`. Connects when it is asked first, and anew after an error.
[[nodiscard]] dashboard::Desk make_desk(DeskConfig config);

}  // namespace outbox::app
