// SPDX-License-Identifier: MIT
// The CRC32C kernels, each also as a copy that computes on the way.
//
// Polynomials are reflected: in a word of n bits, bit k stands for x^(n-1-k). A carry-less product
// of two such words of n bits comes out one power of x high, which the constants below make up for.
// Inside, a CRC is the bare register; the complement on entry and exit is at the edges.
#include "wire/crc32c.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#endif

namespace airdma::wire {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;

// Portable: eight table look-ups for eight bytes.

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

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
constexpr Tables kTables = make_tables();

std::uint64_t load_le64(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

std::uint32_t extend_portable(std::uint32_t crc, Bytes bytes) {
  crc = ~crc;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint64_t word = load_le64(at) ^ crc;
    crc = kTables[7][word & 0xff] ^ kTables[6][word >> 8 & 0xff] ^ kTables[5][word >> 16 & 0xff] ^
          kTables[4][word >> 24 & 0xff] ^ kTables[3][word >> 32 & 0xff] ^
          kTables[2][word >> 40 & 0xff] ^ kTables[1][word >> 48 & 0xff] ^ kTables[0][word >> 56];
  }
  for (; left > 0; --left, ++at) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint8_t>(*at)) & 0xff];
  }
  return ~crc;
}

/// Copy and CRC by pieces that stay in the first-level cache in between.
std::uint32_t copy_portable(std::uint32_t crc, std::byte* to, Bytes from) {
  constexpr std::size_t kPiece = 4096;
  while (!from.empty()) {
    const Bytes piece = from.first(std::min(kPiece, from.size()));
    std::memcpy(to, piece.data(), piece.size());
    crc = extend_portable(crc, piece);
    to += piece.size();
    from = from.subspan(piece.size());
  }
  return crc;
}

bool always() { return true; }

#if defined(__x86_64__)

/// x^exponent modulo the polynomial, reflected in 32 bits.
consteval std::uint32_t power_of_x(unsigned exponent) {
  std::uint32_t value = 0x80000000;  // x^0
  for (unsigned i = 0; i < exponent; ++i) value = (value >> 1) ^ (value & 1 ? kPolynomial : 0);
  return value;
}

// SSE4.2: the crc32 instruction takes 8 bytes with a latency of three cycles, one starting each
// cycle, so three independent streams keep it busy. Their registers are joined by multiplying the
// earlier ones by the power of x that stands for the bytes they lie ahead.

#define AIRDMA_SSE __attribute__((target("sse4.2,pclmul")))
#define AIRDMA_SSE_INLINE __attribute__((target("sse4.2,pclmul"), always_inline)) inline

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

template <bool kCopy>
AIRDMA_SSE_INLINE std::uint64_t crc_word(std::uint64_t crc, const Cursor<kCopy>& at,
                                         std::size_t offset) {
  std::uint64_t word;
  std::memcpy(&word, at.from + offset, sizeof word);
  if constexpr (kCopy) std::memcpy(at.to + offset, &word, sizeof word);
  return _mm_crc32_u64(crc, word);
}

/// Register `crc` as it is after kBytes of zeros. The product is one power high and the crc32
/// instruction multiplies by x^32, hence the 33.
template <unsigned kBytes>
AIRDMA_SSE_INLINE std::uint64_t shifted(std::uint64_t crc) {
  const __m128i factor = _mm_cvtsi32_si128(static_cast<int>(power_of_x(8 * kBytes - 33)));
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(crc)), factor, 0);
  return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product)));
}

template <bool kCopy, unsigned kStream>
AIRDMA_SSE_INLINE std::uint64_t three_streams(std::uint64_t crc, Cursor<kCopy>& at) {
  while (at.left >= 3 * kStream) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kStream; i += 8) {
      crc = crc_word<kCopy>(crc, at, i);
      second = crc_word<kCopy>(second, at, kStream + i);
      third = crc_word<kCopy>(third, at, 2 * kStream + i);
    }
    crc = shifted<2 * kStream>(crc) ^ shifted<kStream>(second) ^ third;
    at.advance(3 * kStream);
  }
  return crc;
}

/// All that is left, eight bytes at a time, then one.
template <bool kCopy>
AIRDMA_SSE_INLINE std::uint32_t one_stream(std::uint64_t crc, Cursor<kCopy>& at) {
  while (at.left >= 8) {
    crc = crc_word<kCopy>(crc, at, 0);
    at.advance(8);
  }
  auto narrow = static_cast<std::uint32_t>(crc);
  while (at.left > 0) {
    if constexpr (kCopy) *at.to = *at.from;
    narrow = _mm_crc32_u8(narrow, static_cast<std::uint8_t>(*at.from));
    at.advance(1);
  }
  return narrow;
}

template <bool kCopy>
AIRDMA_SSE std::uint32_t run_sse(std::uint32_t crc, std::byte* to, Bytes from) {
  Cursor<kCopy> at{from.data(), to, from.size()};
  std::uint64_t wide = ~crc;
  wide = three_streams<kCopy, 1024>(wide, at);
  wide = three_streams<kCopy, 128>(wide, at);
  return ~one_stream<kCopy>(wide, at);
}

std::uint32_t extend_sse(std::uint32_t crc, Bytes bytes) {
  return run_sse<false>(crc, nullptr, bytes);
}
std::uint32_t copy_sse(std::uint32_t crc, std::byte* to, Bytes from) {
  return run_sse<true>(crc, to, from);
}

bool has_sse() { return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"); }

// AVX-512 with VPCLMULQDQ: registers of four 128-bit lanes. A lane's remainder is carried over D
// bits by multiplying its two halves by x^D modulo the polynomial ("folding"), then the data there
// is added. The last lane goes through the crc32 instruction, which is the final reduction.

#define AIRDMA_AVX512 __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))
#define AIRDMA_AVX512_INLINE \
  __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq"), always_inline)) inline

/// Factor of the half of a lane that bit 0 is in (its powers are 64 higher), and of the other.
consteval long long fold_low(unsigned bits) {
  return std::bit_cast<long long>(std::uint64_t{power_of_x(bits + 63)} << 32);
}
consteval long long fold_high(unsigned bits) {
  return std::bit_cast<long long>(std::uint64_t{power_of_x(bits - 1)} << 32);
}

template <unsigned kBits>
AIRDMA_AVX512_INLINE __m512i fold_factors() {
  constexpr long long kLow = fold_low(kBits);
  constexpr long long kHigh = fold_high(kBits);
  return _mm512_set_epi64(kHigh, kLow, kHigh, kLow, kHigh, kLow, kHigh, kLow);
}

AIRDMA_AVX512_INLINE __m512i fold(__m512i lanes, __m512i factors, __m512i data) {
  const __m512i low = _mm512_clmulepi64_epi128(lanes, factors, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(lanes, factors, 0x11);
  return _mm512_ternarylogic_epi64(low, high, data, 0x96);  // exclusive or of three
}

template <bool kCopy>
AIRDMA_AVX512_INLINE __m512i take(const Cursor<kCopy>& at, std::size_t offset) {
  const __m512i data = _mm512_loadu_si512(at.from + offset);
  if constexpr (kCopy) _mm512_storeu_si512(at.to + offset, data);
  return data;
}

template <int kLane>
AIRDMA_AVX512_INLINE __m128i lane_of(__m512i lanes) {
  return _mm512_maskz_extracti32x4_epi32(0xf, lanes, kLane);
}

/// The four lanes of 64 bytes folded into the last one and reduced to a register.
AIRDMA_AVX512_INLINE std::uint64_t reduce(__m512i lanes) {
  const __m512i factors = _mm512_set_epi64(0, 0, fold_high(128), fold_low(128), fold_high(256),
                                           fold_low(256), fold_high(384), fold_low(384));
  const __m512i last = _mm512_maskz_mov_epi64(0xc0, lanes);
  const __m512i folded = fold(lanes, factors, last);
  const __m128i lane = _mm_xor_si128(_mm_xor_si128(lane_of<0>(folded), lane_of<1>(folded)),
                                     _mm_xor_si128(lane_of<2>(folded), lane_of<3>(folded)));
  const std::uint64_t crc = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(lane)));
  return _mm_crc32_u64(crc, static_cast<std::uint64_t>(_mm_extract_epi64(lane, 1)));
}

/// At least 256 bytes are left; fewer than 64 afterwards.
template <bool kCopy>
AIRDMA_AVX512_INLINE std::uint64_t folded(std::uint64_t crc, Cursor<kCopy>& at) {
  const __m512i first = _mm512_zextsi128_si512(_mm_cvtsi64_si128(static_cast<long long>(crc)));
  __m512i a = _mm512_xor_si512(take<kCopy>(at, 0), first);
  __m512i b = take<kCopy>(at, 64);
  __m512i c = take<kCopy>(at, 128);
  __m512i d = take<kCopy>(at, 192);
  at.advance(256);
  const __m512i by_256_bytes = fold_factors<2048>();
  while (at.left >= 256) {
    a = fold(a, by_256_bytes, take<kCopy>(at, 0));
    b = fold(b, by_256_bytes, take<kCopy>(at, 64));
    c = fold(c, by_256_bytes, take<kCopy>(at, 128));
    d = fold(d, by_256_bytes, take<kCopy>(at, 192));
    at.advance(256);
  }
  const __m512i by_64_bytes = fold_factors<512>();
  c = fold(a, fold_factors<1024>(), c);
  d = fold(b, fold_factors<1024>(), d);
  d = fold(c, by_64_bytes, d);
  while (at.left >= 64) {
    d = fold(d, by_64_bytes, take<kCopy>(at, 0));
    at.advance(64);
  }
  return reduce(d);
}

template <bool kCopy>
AIRDMA_AVX512 std::uint32_t run_avx512(std::uint32_t crc, std::byte* to, Bytes from) {
  Cursor<kCopy> at{from.data(), to, from.size()};
  std::uint64_t wide = ~crc;
  if (at.left >= 256) wide = folded<kCopy>(wide, at);
  return ~one_stream<kCopy>(wide, at);
}

std::uint32_t extend_avx512(std::uint32_t crc, Bytes bytes) {
  return run_avx512<false>(crc, nullptr, bytes);
}
std::uint32_t copy_avx512(std::uint32_t crc, std::byte* to, Bytes from) {
  return run_avx512<true>(crc, to, from);
}

bool has_avx512() {
  return has_sse() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

#elif defined(__aarch64__)

// ARMv8: the CRC32C instructions, one stream.

#if defined(__clang__)
#define AIRDMA_ARM_CRC __attribute__((target("crc")))
#else
#define AIRDMA_ARM_CRC __attribute__((target("+crc")))
#endif

template <bool kCopy>
AIRDMA_ARM_CRC std::uint32_t run_arm(std::uint32_t crc, std::byte* to, Bytes from) {
  crc = ~crc;
  const std::byte* at = from.data();
  std::size_t left = from.size();
  for (; left >= 8; left -= 8, at += 8) {
    if constexpr (kCopy) {
      std::memcpy(to, at, 8);
      to += 8;
    }
    crc = __crc32cd(crc, load_le64(at));
  }
  for (; left > 0; --left, ++at) {
    if constexpr (kCopy) *to++ = *at;
    crc = __crc32cb(crc, static_cast<std::uint8_t>(*at));
  }
  return ~crc;
}

std::uint32_t extend_arm(std::uint32_t crc, Bytes bytes) {
  return run_arm<false>(crc, nullptr, bytes);
}
std::uint32_t copy_arm(std::uint32_t crc, std::byte* to, Bytes from) {
  return run_arm<true>(crc, to, from);
}

/// The kernel lets programs read this identification register (Linux 4.11 and later), which spares
/// a call into libc for the auxiliary vector.
bool has_arm_crc() {
  std::uint64_t isar0;
  __asm__("mrs %0, ID_AA64ISAR0_EL1" : "=r"(isar0));
  return ((isar0 >> 16) & 0xf) != 0;
}

#endif

constexpr Crc32cVariant kVariants[] = {
#if defined(__x86_64__)
    {"avx512", has_avx512, extend_avx512, copy_avx512},
    {"sse42", has_sse, extend_sse, copy_sse},
#elif defined(__aarch64__)
    {"arm-crc", has_arm_crc, extend_arm, copy_arm},
#endif
    {"portable", always, extend_portable, copy_portable},
};

/// Chosen on first use: threads that meet here choose alike, and no constructor runs at load time.
constinit std::atomic<const Crc32cVariant*> best_variant{nullptr};

const Crc32cVariant& choose() {
  const Crc32cVariant* chosen =
      std::ranges::find_if(kVariants, [](const Crc32cVariant& v) { return v.supported(); });
  best_variant.store(chosen, std::memory_order_relaxed);
  return *chosen;
}

const Crc32cVariant& best() {
  const Crc32cVariant* chosen = best_variant.load(std::memory_order_relaxed);
  return chosen != nullptr ? *chosen : choose();
}

}  // namespace

std::uint32_t crc32c_extend(std::uint32_t crc, Bytes bytes) { return best().extend(crc, bytes); }

std::uint32_t crc32c_copy(std::uint32_t crc, std::byte* to, Bytes from) {
  return best().copy(crc, to, from);
}

std::span<const Crc32cVariant> crc32c_variants() { return kVariants; }

}  // namespace airdma::wire
