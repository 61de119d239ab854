#pragma once

#include <algorithm>
#include <memory>
#include <string_view>

#include "databases/postgres/stream/row_decoder.h"

namespace outbox::test {

// A copy in a buffer of that very size, so that AddressSanitizer sees a read beyond it.
class Exactly {
  public:
    explicit Exactly(std::string_view bytes)
        : bytes_(std::make_unique<char[]>(bytes.size())), size_(bytes.size()) {
        std::copy(bytes.begin(), bytes.end(), bytes_.get());
    }
    operator std::string_view() const { return {bytes_.get(), size_}; }  // NOLINT

  private:
    std::unique_ptr<char[]> bytes_;
    std::size_t size_;
};

// The table that the fuzzed decoder reads: every field is mapped to a column of its own name.
inline postgres::StreamTable fuzz_table() {
    postgres::StreamTable table;
    table.oid = 16'400;
    table.schema = "s";
    table.name = "t";
    table.id_prefix = "s.t:";
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        table.columns[i] = postgres::field_name(static_cast<postgres::RowColumn>(i));
    }
    table.metadata_columns = {"m", "other"};
    table.tenants = {"acme", "beta"};
    table.default_tenant = "acme";
    table.types[20'000] = postgres::WireType::kText;
    return table;
}

}  // namespace outbox::test
