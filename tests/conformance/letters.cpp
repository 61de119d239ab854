#include "tests/conformance/letters.h"

#include <map>
#include <set>

namespace outbox::test {

std::vector<Letter> letters(const std::string& topic, std::size_t count, std::size_t keys,
                            std::size_t value_bytes) {
    std::vector<Letter> all;
    all.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        Letter letter;
        letter.id = "id-" + std::to_string(i);
        letter.topic = topic;
        letter.key = "key-" + std::to_string(i % keys);
        letter.value = std::string(value_bytes, 'v');
        letter.headers = {{"id", letter.id}};
        all.push_back(std::move(letter));
    }
    return all;
}

std::string missing_or_reordered(const std::vector<Letter>& sent,
                                 const std::vector<Arrived>& arrived) {
    using Ids = std::vector<std::string>;
    std::map<std::string, Ids> wanted;
    for (const Letter& letter : sent) wanted[letter.key.value_or("")].push_back(letter.id);
    std::map<std::string, Ids> found;
    std::set<std::string> seen;
    for (const Arrived& record : arrived) {
        if (seen.insert(record.id).second) found[record.key.value_or("")].push_back(record.id);
    }
    for (const auto& [key, ids] : wanted) {
        const Ids& came = found[key];
        for (std::size_t i = 0; i < ids.size(); ++i) {
            if (i < came.size() && came[i] == ids[i]) continue;
            return key + ": of " + std::to_string(ids.size()) + " arrived " +
                   std::to_string(came.size()) + "; number " + std::to_string(i) + " is " +
                   (i < came.size() ? came[i] : "missing") + ", not " + ids[i];
        }
        if (came.size() > ids.size()) return key + ": " + came[ids.size()] + " was not sent";
    }
    return {};
}

}  // namespace outbox::test
