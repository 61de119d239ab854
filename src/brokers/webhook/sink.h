#pragma once

#include <memory>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "core/clock.h"
#include "webhook/dispatch_options.h"
#include "webhook/sender.h"
#include "webhook/store.h"

namespace outbox::webhook {

/// Of the table of deliveries, which is what the relay writes to.
inline const spi::SinkCapabilities kCapabilities{"webhook",
                                                 spi::Guarantee::kExactlyOnceKept,
                                                 /*fail_stop_order=*/true,
                                                 /*durable=*/true,
                                                 /*across_topics=*/true,
                                                 {"ce-", "Content-Type",
                                                  /*type_as_attribute=*/false,
                                                  /*percent_encoded=*/true}};

/// What a sink works with. `clock` outlives it.
struct SinkParts {
    std::unique_ptr<Inlet> inlet;
    std::unique_ptr<Outlet> outlet;
    std::unique_ptr<Sender> sender;
    const core::Clock& clock;
    DispatchOptions options;
};

/// A sink that writes a delivery for each endpoint that wants the event, which finishes the event;
/// and from its first `poll` on a thread that delivers (`Dispatcher`). So who only asks it
/// something
/// (`--check`, a relay that stands by) delivers nothing.
std::unique_ptr<spi::Sink> make_webhook_sink(SinkParts parts);

}  // namespace outbox::webhook
