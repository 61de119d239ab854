#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include <outbox/result.h>

#include "admin/server.h"
#include "dashboard/gate.h"

namespace outbox::dashboard {

/// What the page asks: "/api/letters" with the query's values, or a change with its JSON.
struct Question {
    std::string path;
    std::map<std::string, std::string> values = {};
    bool changes = false;  ///< It is a POST: `body` says what to do.
    std::string body = {};
};

/// What a text of an answer is cut to, so that a page can show it; and one that is called payload.
inline constexpr std::size_t kMaxTextBytes = 4'096;
inline constexpr std::size_t kMaxPayloadBytes = 65'536;

/// Answers what passed the gate. Errors become a status and a JSON that names them; an answer that
/// is null: there is nothing of this path. Called by one thread; may block.
using Desk = std::function<Result<nlohmann::ordered_json>(const Question& question)>;

/// A desk that is at work on one question for longer is not waited for: others are told so (503).
inline constexpr std::chrono::seconds kMostBusy{10};

/// The page's files, also while the desk is at work, and behind /api/ what the desk answers.
[[nodiscard]] admin::AdminServer::Site make_site(GateConfig gate, Desk desk);

}  // namespace outbox::dashboard
