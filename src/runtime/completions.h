#pragma once

#include <string>

namespace outbox::runtime {

/// packaging/completions/outbox.bash: commands, the options of each, choices and files.
[[nodiscard]] std::string bash_completion();

/// packaging/completions/outbox.fish: the same, with what each is for.
[[nodiscard]] std::string fish_completion();

/// packaging/completions/outbox.zsh, which zsh looks for as `_outbox`: the same.
[[nodiscard]] std::string zsh_completion();

}  // namespace outbox::runtime
