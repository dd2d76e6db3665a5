// SPDX-License-Identifier: MIT
// What the CRC kernels of crc32c.cc and crc32.cc share; the two differ in their polynomial and in
// what a CPU offers for its last step. For those two files alone.
//
// Polynomials are reflected: in a word of n bits, bit k stands for x^(n-1-k). A carry-less product
// of two such words of n bits comes out one power of x high, which the constants below make up for.
// Inside, a CRC is the bare register; the complement on entry and exit is at the edges.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#endif

namespace airdma::wire::crc {

inline std::uint64_t load_le64(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

/// x^exponent modulo the polynomial, reflected in 32 bits.
template <std::uint32_t kPolynomial>
consteval std::uint32_t power_of_x(unsigned exponent) {
  std::uint32_t value = 0x80000000;  // x^0
  for (unsigned i = 0; i < exponent; ++i) value = (value >> 1) ^ (value & 1 ? kPolynomial : 0);
  return value;
}

// Portable: eight table look-ups for eight bytes.

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

template <std::uint32_t kPolynomial>
consteval Tables make_tables() {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    tables[0][i] = crc;
  }
  for (std::size_t t = 1; t < 8; ++t) {
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint32_t before = tables[t - 1][i];
      tables[t][i] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

/// The register after the eight bytes of `word`, the register before already added to it.
inline std::uint32_t step_by_tables(const Tables& tables, std::uint64_t word) {
  return tables[7][word & 0xff] ^ tables[6][word >> 8 & 0xff] ^ tables[5][word >> 16 & 0xff] ^
         tables[4][word >> 24 & 0xff] ^ tables[3][word >> 32 & 0xff] ^
         tables[2][word >> 40 & 0xff] ^ tables[1][word >> 48 & 0xff] ^ tables[0][word >> 56];
}

inline std::uint32_t extend_by_tables(const Tables& tables, std::uint32_t crc, Bytes bytes) {
  crc = ~crc;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) crc = step_by_tables(tables, load_le64(at) ^ crc);
  for (; left > 0; --left, ++at) {
    crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<std::uint8_t>(*at)) & 0xff];
  }
  return ~crc;
}

/// Copy and CRC by pieces that stay in the first-level cache in between.
inline std::uint32_t copy_by_tables(const Tables& tables, std::uint32_t crc, std::byte* to,
                                    Bytes from) {
  constexpr std::size_t kPiece = 4096;
  while (!from.empty()) {
    const Bytes piece = from.first(std::min(kPiece, from.size()));
    std::memcpy(to, piece.data(), piece.size());
    crc = extend_by_tables(tables, crc, piece);
    to += piece.size();
    from = from.subspan(piece.size());
  }
  return crc;
}

inline bool always() { return true; }

/// Where the next bytes come from and, for a copy, go to.
template <bool kCopy>
struct Cursor {
  const std::byte* from;
  std::byte* to;  // null unless it is a copy
  std::size_t left;

  void advance(std::size_t bytes) {
    from += bytes;
    if constexpr (kCopy) to += bytes;
    left -= bytes;
  }
};

#if defined(__x86_64__)

#define AIRDMA_PCLMUL_TARGET "sse4.2,pclmul"
#define AIRDMA_AVX512_TARGET "sse4.2,pclmul,avx512f,vpclmulqdq"
#define AIRDMA_PCLMUL __attribute__((target(AIRDMA_PCLMUL_TARGET)))
#define AIRDMA_PCLMUL_INLINE __attribute__((target(AIRDMA_PCLMUL_TARGET), always_inline)) inline
#define AIRDMA_AVX512 __attribute__((target(AIRDMA_AVX512_TARGET)))
#define AIRDMA_AVX512_INLINE __attribute__((target(AIRDMA_AVX512_TARGET), always_inline)) inline

/// Whether QEMU translates the instructions instead of letting a processor run them. It has most of
/// those below, but takes each of them bit by bit: tables are four times as fast.
inline bool is_translated() {
  constexpr unsigned kHypervisorBit = 1u << 31;
  constexpr unsigned kHypervisorLeaf = 0x40000000;
  unsigned eax, ebx, ecx, edx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kHypervisorBit) == 0) return false;
  std::array<unsigned, 3> name;
  __cpuid(kHypervisorLeaf, eax, name[0], name[1], name[2]);
  return std::memcmp(name.data(), "TCGTCGTCGTCG", sizeof name) == 0;
}

inline bool has_pclmul() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}
inline bool has_avx512() {
  return has_pclmul() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

// Folding: a lane of 128 bits is a remainder. It is carried over D bits by multiplying its two
// halves by x^D modulo the polynomial, then the data there is added.

/// Factor of the half of a lane that bit 0 is in (its powers are 64 higher), and of the other.
template <std::uint32_t kPolynomial>
consteval long long fold_low(unsigned bits) {
  return std::bit_cast<long long>(std::uint64_t{power_of_x<kPolynomial>(bits + 63)} << 32);
}
template <std::uint32_t kPolynomial>
consteval long long fold_high(unsigned bits) {
  return std::bit_cast<long long>(std::uint64_t{power_of_x<kPolynomial>(bits - 1)} << 32);
}

// AVX-512 with VPCLMULQDQ: registers of four lanes.

template <std::uint32_t kPolynomial, unsigned kBits>
AIRDMA_AVX512_INLINE __m512i fold_factors() {
  constexpr long long kLow = fold_low<kPolynomial>(kBits);
  constexpr long long kHigh = fold_high<kPolynomial>(kBits);
  return _mm512_set_epi64(kHigh, kLow, kHigh, kLow, kHigh, kLow, kHigh, kLow);
}

AIRDMA_AVX512_INLINE __m512i fold(__m512i lanes, __m512i factors, __m512i data) {
  const __m512i low = _mm512_clmulepi64_epi128(lanes, factors, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(lanes, factors, 0x11);
  return _mm512_ternarylogic_epi64(low, high, data, 0x96);  // exclusive or of three
}

template <bool kCopy>
AIRDMA_AVX512_INLINE __m512i take64(const Cursor<kCopy>& at, std::size_t offset) {
  const __m512i data = _mm512_loadu_si512(at.from + offset);
  if constexpr (kCopy) _mm512_storeu_si512(at.to + offset, data);
  return data;
}

template <int kLane>
AIRDMA_AVX512_INLINE __m128i lane_of(__m512i lanes) {
  return _mm512_maskz_extracti32x4_epi32(0xf, lanes, kLane);
}

/// The four lanes of 64 bytes folded into the last one.
template <std::uint32_t kPolynomial>
AIRDMA_AVX512_INLINE __m128i join_lanes(__m512i lanes) {
  constexpr std::uint32_t kP = kPolynomial;
  const __m512i factors =
      _mm512_set_epi64(0, 0, fold_high<kP>(128), fold_low<kP>(128), fold_high<kP>(256),
                       fold_low<kP>(256), fold_high<kP>(384), fold_low<kP>(384));
  const __m512i last = _mm512_maskz_mov_epi64(0xc0, lanes);
  const __m512i folded = fold(lanes, factors, last);
  return _mm_xor_si128(_mm_xor_si128(lane_of<0>(folded), lane_of<1>(folded)),
                       _mm_xor_si128(lane_of<2>(folded), lane_of<3>(folded)));
}

/// The remainder of all but the last bytes, fewer than 64, as a lane. At least 256 must be left.
template <std::uint32_t kPolynomial, bool kCopy>
AIRDMA_AVX512_INLINE __m128i fold_by_64(std::uint32_t crc, Cursor<kCopy>& at) {
  const __m512i first = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc)));
  __m512i a = _mm512_xor_si512(take64<kCopy>(at, 0), first);
  __m512i b = take64<kCopy>(at, 64);
  __m512i c = take64<kCopy>(at, 128);
  __m512i d = take64<kCopy>(at, 192);
  at.advance(256);
  const __m512i by_256_bytes = fold_factors<kPolynomial, 2048>();
  while (at.left >= 256) {
    a = fold(a, by_256_bytes, take64<kCopy>(at, 0));
    b = fold(b, by_256_bytes, take64<kCopy>(at, 64));
    c = fold(c, by_256_bytes, take64<kCopy>(at, 128));
    d = fold(d, by_256_bytes, take64<kCopy>(at, 192));
    at.advance(256);
  }
  const __m512i by_64_bytes = fold_factors<kPolynomial, 512>();
  c = fold(a, fold_factors<kPolynomial, 1024>(), c);
  d = fold(b, fold_factors<kPolynomial, 1024>(), d);
  d = fold(c, by_64_bytes, d);
  while (at.left >= 64) {
    d = fold(d, by_64_bytes, take64<kCopy>(at, 0));
    at.advance(64);
  }
  return join_lanes<kPolynomial>(d);
}

#elif defined(__aarch64__)

#if defined(__clang__)
#define AIRDMA_ARM_CRC __attribute__((target("crc")))
#else
#define AIRDMA_ARM_CRC __attribute__((target("+crc")))
#endif

/// The kernel lets programs read this identification register (Linux 4.11 and later), which spares
/// a call into libc for the auxiliary vector.
inline bool has_arm_crc() {
  std::uint64_t isar0;
  __asm__("mrs %0, ID_AA64ISAR0_EL1" : "=r"(isar0));
  return ((isar0 >> 16) & 0xf) != 0;
}

#endif

#if !defined(__x86_64__)
inline bool is_translated() { return false; }
#endif

/// The first of `variants` that the CPU supports, or the last where others only seem to be faster.
/// Chosen on first use: threads that meet here choose alike, and no constructor runs at load time.
template <class Variant>
const Variant& best_of(std::atomic<const Variant*>& best, std::span<const Variant> variants) {
  if (const Variant* chosen = best.load(std::memory_order_relaxed)) return *chosen;
  const Variant* chosen = &variants.back();
  if (!is_translated()) {
    chosen = &*std::ranges::find_if(variants, [](const Variant& v) { return v.supported(); });
  }
  best.store(chosen, std::memory_order_relaxed);
  return *chosen;
}

}  // namespace airdma::wire::crc
