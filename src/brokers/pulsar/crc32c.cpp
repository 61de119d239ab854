#include "brokers/pulsar/crc32c.h"

#include <array>
#include <cstddef>

namespace outbox::pulsar {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reflected
constexpr std::size_t kSlices = 8;

// Eight bytes a step (M. E. Kounavis, F. L. Berry: A Systematic Approach to Building High
// Performance Software-Based CRC Generators, 2005): table i is of a byte with i zeros behind it.
constexpr auto kTables = [] {
    std::array<std::array<std::uint32_t, 256>, kSlices> tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? kPolynomial : 0);
        tables[0][byte] = crc;
    }
    for (std::size_t slice = 1; slice < kSlices; ++slice) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = tables[slice - 1][byte];
            tables[slice][byte] = before >> 8U ^ tables[0][before & 0xFFU];
        }
    }
    return tables;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    std::uint32_t crc = 0xFFFFFFFFU;
    const auto at = [&bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    for (; bytes.size() >= kSlices; bytes.remove_prefix(kSlices)) {
        std::uint32_t next = 0;
        for (std::size_t i = 0; i < kSlices; ++i) {
            const std::uint32_t mixed = i < 4 ? crc >> 8 * i & 0xFFU : 0;
            next ^= kTables[kSlices - 1 - i][(at(i) ^ mixed) & 0xFFU];
        }
        crc = next;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        crc = crc >> 8U ^ kTables[0][(crc ^ at(i)) & 0xFFU];
    }
    return crc ^ 0xFFFFFFFFU;
}

}  // namespace outbox::pulsar
