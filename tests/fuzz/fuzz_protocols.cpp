// What servers of NATS, MQTT and Pulsar may send, in pieces: no read beyond what came, and the same
// frames however the bytes are cut.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "brokers/mqtt/protocol.h"
#include "brokers/nats/protocol.h"
#include "brokers/pulsar/protocol.h"
#include "net/header_line.h"

namespace {

std::string nats_frames(std::string_view bytes, std::size_t step) {
    outbox::nats::Reader reader;
    std::string said;
    std::string broken;
    for (std::size_t i = 0; i < bytes.size() && broken.empty(); i += step) {
        reader.buffer().append(bytes.substr(i, step));
        while (const auto frame = reader.next(broken)) {
            for (const std::string_view part :
                 {frame->text, frame->subject, frame->reply, frame->headers, frame->payload}) {
                said.append(part).append("|");
            }
            outbox::nats::HeaderLines lines(frame->headers);
            said.append(lines.status()).append(lines.description());
            std::string_view name;
            std::string_view value;
            while (lines.next(name, value)) {
                const auto [left, right] = outbox::net::decode_header(name, value);
                said.append(left).append(right);
            }
        }
    }
    return said;
}

std::string mqtt_packets(std::string_view bytes, std::size_t step) {
    outbox::mqtt::Reader reader;
    std::string said;
    std::string broken;
    for (std::size_t i = 0; i < bytes.size() && broken.empty(); i += step) {
        reader.buffer().append(bytes.substr(i, step));
        while (const auto packet = reader.next(broken)) {
            said.append(std::to_string(static_cast<int>(packet->kind)));
            said.append(std::to_string(packet->id)).append(std::to_string(packet->code));
            said.append(packet->reason).append("|");
        }
    }
    return said;
}

std::string pulsar_commands(std::string_view bytes, std::size_t step) {
    outbox::pulsar::Reader reader;
    std::string said;
    std::string broken;
    for (std::size_t i = 0; i < bytes.size() && broken.empty(); i += step) {
        reader.buffer().append(bytes.substr(i, step));
        while (const auto command = reader.next(broken)) {
            said.append(std::to_string(static_cast<int>(command->kind)));
            for (const std::uint64_t number :
                 {command->request, command->producer, command->sequence,
                  std::uint64_t{command->error}, std::uint64_t{command->partitions}}) {
                said.append(std::to_string(number)).append(" ");
            }
            for (const std::string_view part : {command->text, command->url, command->url_tls}) {
                said.append(part).append("|");
            }
        }
    }
    return said;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    const std::size_t step = data[0] % 16 + 1;
    if (nats_frames(bytes, step) != nats_frames(bytes, bytes.size())) std::abort();
    if (mqtt_packets(bytes, step) != mqtt_packets(bytes, bytes.size())) std::abort();
    if (pulsar_commands(bytes, step) != pulsar_commands(bytes, bytes.size())) std::abort();
    return 0;
}
