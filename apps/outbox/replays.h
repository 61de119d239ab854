#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "replay/runs.h"
#include "runtime/config.h"

namespace outbox::app {

/// As `outbox replay --json` prints a run.
[[nodiscard]] nlohmann::ordered_json json_of(const replay::Run& run);

/// "running by host:1", "stopped", "finished", ...
[[nodiscard]] std::string state_of(const replay::Run& run);

/// What became of a run, for people.
void print_run(const replay::Run& run);

/// --reason as it was given, or why it cannot be. Errors: kConfigInvalid.
Result<std::string> reason_of(const runtime::Invocation& invocation);

/// The run that the command names. Errors: kConfigInvalid, `kConflict` where there is none.
Result<replay::Run> named_run(const runtime::Invocation& invocation, replay::Runs& runs);

}  // namespace outbox::app
