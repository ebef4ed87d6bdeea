// FarmHash (Pike and Alakuijala, 2014), the variant whose values are fixed for ever; SipHash-2-4
// (Aumasson and Bernstein, 2012).

#include "keras/layers/hashes.h"

#include <bit>
#include <cstring>
#include <utility>

namespace tutti::keras::layers {
namespace {

constexpr uint64_t kK0 = 0xc3a5c85c97cb3127;
constexpr uint64_t kK1 = 0xb492b66fbe98f273;
constexpr uint64_t kK2 = 0x9ae16a3b2f90404f;

/// Little-endian, wherever the bytes lie.
template <class Word>
Word fetch(const char* bytes) {
  Word word = 0;
  for (std::size_t i = 0; i < sizeof(Word); ++i)
    word |= static_cast<Word>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return word;
}
uint64_t fetch64(const char* bytes) { return fetch<uint64_t>(bytes); }
uint64_t fetch32(const char* bytes) { return fetch<uint32_t>(bytes); }

uint64_t shift_mix(uint64_t value) { return value ^ (value >> 47); }

uint64_t hash16(uint64_t u, uint64_t v, uint64_t mul) {
  const uint64_t a = shift_mix((u ^ v) * mul);
  return shift_mix((v ^ a) * mul) * mul;
}

uint64_t hash_to16(const char* s, uint64_t size) {
  const uint64_t mul = kK2 + size * 2;
  if (size >= 8) {
    const uint64_t a = fetch64(s) + kK2, b = fetch64(s + size - 8);
    return hash16(std::rotr(b, 37) * mul + a, (std::rotr(a, 25) + b) * mul, mul);
  }
  if (size >= 4) return hash16(size + (fetch32(s) << 3), fetch32(s + size - 4), mul);
  if (size == 0) return kK2;
  const auto byte = [&](uint64_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(s[i]));
  };
  const uint32_t y = byte(0) + (byte(size >> 1) << 8);
  const uint32_t z = static_cast<uint32_t>(size) + (byte(size - 1) << 2);
  return shift_mix(y * kK2 ^ z * kK0) * kK2;
}

uint64_t hash_to32(const char* s, uint64_t size) {
  const uint64_t mul = kK2 + size * 2;
  const uint64_t a = fetch64(s) * kK1, b = fetch64(s + 8);
  const uint64_t c = fetch64(s + size - 8) * mul, d = fetch64(s + size - 16) * kK2;
  return hash16(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + kK2, 18) + c, mul);
}

uint64_t hash_to64(const char* s, uint64_t size) {
  const uint64_t mul = kK2 + size * 2;
  const uint64_t a = fetch64(s) * kK2, b = fetch64(s + 8);
  const uint64_t c = fetch64(s + size - 8) * mul, d = fetch64(s + size - 16) * kK2;
  const uint64_t y = std::rotr(a + b, 43) + std::rotr(c, 30) + d;
  const uint64_t z = hash16(y, a + std::rotr(b + kK2, 18) + c, mul);
  const uint64_t e = fetch64(s + 16) * mul, f = fetch64(s + 24);
  const uint64_t g = (y + fetch64(s + size - 32)) * mul, h = (z + fetch64(s + size - 24)) * mul;
  return hash16(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g, mul);
}

using Pair = std::pair<uint64_t, uint64_t>;
Pair weak_hash32(const char* s, uint64_t a, uint64_t b) {
  a += fetch64(s);
  b = std::rotr(b + a + fetch64(s + 24), 21);
  const uint64_t c = a;
  a += fetch64(s + 8) + fetch64(s + 16);
  b += std::rotr(a, 44);
  return {a + fetch64(s + 24), b + c};
}

}  // namespace

uint64_t fingerprint64(std::string_view text) {
  const char* s = text.data();
  const uint64_t size = text.size();
  if (size <= 16) return hash_to16(s, size);
  if (size <= 32) return hash_to32(s, size);
  if (size <= 64) return hash_to64(s, size);
  uint64_t x = 81, y = 81 * kK1 + 113;
  uint64_t z = shift_mix(y * kK2 + 113) * kK2;
  Pair v{0, 0}, w{0, 0};
  x = x * kK2 + fetch64(s);
  const char* const end = s + ((size - 1) / 64) * 64;
  const char* const last64 = end + ((size - 1) & 63) - 63;
  do {
    x = std::rotr(x + y + v.first + fetch64(s + 8), 37) * kK1;
    y = std::rotr(y + v.second + fetch64(s + 48), 42) * kK1;
    x ^= w.second;
    y += v.first + fetch64(s + 40);
    z = std::rotr(z + w.first, 33) * kK1;
    v = weak_hash32(s, v.second * kK1, x + w.first);
    w = weak_hash32(s + 32, z + w.second, y + fetch64(s + 16));
    std::swap(z, x);
    s += 64;
  } while (s != end);
  const uint64_t mul = kK1 + ((z & 0xff) << 1);
  s = last64;
  w.first += (size - 1) & 63;
  v.first += w.first;
  w.first += v.first;
  x = std::rotr(x + y + v.first + fetch64(s + 8), 37) * mul;
  y = std::rotr(y + v.second + fetch64(s + 48), 42) * mul;
  x ^= w.second * 9;
  y += v.first * 9 + fetch64(s + 40);
  z = std::rotr(z + w.first, 33) * mul;
  v = weak_hash32(s, v.second * mul, x + w.first);
  w = weak_hash32(s + 32, z + w.second, y + fetch64(s + 16));
  std::swap(z, x);
  return hash16(hash16(v.first, w.first, mul) + shift_mix(y) * kK0 + z,
                hash16(v.second, w.second, mul) + x, mul);
}

uint64_t fingerprint_cat64(uint64_t first, uint64_t second) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  uint64_t result = first ^ kMul;
  result ^= shift_mix(second * kMul) * kMul;
  result *= kMul;
  return shift_mix(shift_mix(result) * kMul);
}

uint64_t sip_hash(std::string_view text, const std::array<uint64_t, 2>& keys) {
  uint64_t v0 = keys[0] ^ 0x736f6d6570736575, v1 = keys[1] ^ 0x646f72616e646f6d;
  uint64_t v2 = keys[0] ^ 0x6c7967656e657261, v3 = keys[1] ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto take = [&](uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  };
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) take(fetch64(text.data() + at));
  uint64_t last = static_cast<uint64_t>(text.size()) << 56;
  for (std::size_t i = 0; at + i < text.size(); ++i)
    last |= static_cast<uint64_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
  take(last);
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace tutti::keras::layers
