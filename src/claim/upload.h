#pragma once

#include <memory>
#include <string>

#include "claim/object_store.h"
#include "prepare/preparation.h"

namespace outbox::claim {

/// Writes the payloads of records that have a reference in their place.
class Upload final : public prepare::Preparation {
  public:
    explicit Upload(std::unique_ptr<ObjectStore> store)
        : store_(std::move(store)), needs_("object store " + store_->url()) {}

    [[nodiscard]] const std::string& needs() const override { return needs_; }
    [[nodiscard]] bool concerns(const spi::Record& record) const override {
        return record.object.data() != nullptr;
    }
    Status prepare(spi::Record& record, prepare::Prepared& /*out*/,
                   const std::stop_token& stop) override {
        return store_->put(record.object, record.payload, stop);
    }

  private:
    const std::unique_ptr<ObjectStore> store_;
    const std::string needs_;
};

}  // namespace outbox::claim
