#pragma once
// The hashes by which TensorFlow puts strings into buckets: the same numbers on every platform.

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti::keras::layers {

/// FarmHash's Fingerprint64.
uint64_t fingerprint64(std::string_view text);
/// Of two fingerprints, in this order.
uint64_t fingerprint_cat64(uint64_t first, uint64_t second);
/// SipHash-2-4 of these keys.
uint64_t sip_hash(std::string_view text, const std::array<uint64_t, 2>& keys);

}  // namespace tutti::keras::layers
