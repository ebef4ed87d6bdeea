#include <array>
#include <cstring>

#include "io/record_format.h"
#include "tutti/io/tf_record.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace tutti::io {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][i] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t i = 0; i < 256; ++i)
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xff];
  }
  return tables;
}
constexpr Tables kTables = make_tables();

// Eight bytes a step: byte k of them still goes through 7 - k steps of a byte, which table 7 - k
// has taken.
uint32_t by_tables(uint32_t crc, const char* data, std::size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; size > 0; ++data, --size)
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint8_t>(*data)) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t crc, const char* data,
                                                          std::size_t size) {
  uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<uint32_t>(wide);
  for (; size > 0; ++data, --size) narrow = _mm_crc32_u8(narrow, static_cast<uint8_t>(*data));
  return narrow;
}
uint32_t extended(uint32_t crc, const char* data, std::size_t size) {
  return __builtin_cpu_supports("sse4.2") ? by_instruction(crc, data, size)
                                          : by_tables(crc, data, size);
}
#elif defined(__ARM_FEATURE_CRC32)
uint32_t extended(uint32_t crc, const char* data, std::size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    crc = __crc32cd(crc, word);
  }
  return by_tables(crc, data, size);
}
#else
uint32_t extended(uint32_t crc, const char* data, std::size_t size) {
  return by_tables(crc, data, size);
}
#endif

}  // namespace

uint32_t crc32c_by_tables(std::string_view bytes) {
  return ~by_tables(~0U, bytes.data(), bytes.size());
}

uint32_t crc32c(std::string_view bytes) { return ~extended(~0U, bytes.data(), bytes.size()); }

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

}  // namespace tutti::io
