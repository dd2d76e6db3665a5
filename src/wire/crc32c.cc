// SPDX-License-Identifier: MIT
// The CRC32C kernels, each also as a copy that computes on the way.
#include "wire/crc32c.h"

#include "wire/crc_kernels.h"

namespace airdma::wire {
namespace {

using namespace crc;

constexpr std::uint32_t kPolynomial = 0x82f63b78;
constexpr Tables kTables = make_tables<kPolynomial>();

std::uint32_t extend_portable(std::uint32_t crc, Bytes bytes) {
  return extend_by_tables(kTables, crc, bytes);
}
std::uint32_t copy_portable(std::uint32_t crc, std::byte* to, Bytes from) {
  return copy_by_tables(kTables, crc, to, from);
}

#if defined(__x86_64__)

// SSE4.2: the crc32 instruction takes 8 bytes with a latency of three cycles, one starting each
// cycle, so three independent streams keep it busy. Their registers are joined by multiplying the
// earlier ones by the power of x that stands for the bytes they lie ahead.

template <bool kCopy>
AIRDMA_PCLMUL_INLINE std::uint64_t crc_word(std::uint64_t crc, const Cursor<kCopy>& at,
                                            std::size_t offset) {
  std::uint64_t word;
  std::memcpy(&word, at.from + offset, sizeof word);
  if constexpr (kCopy) std::memcpy(at.to + offset, &word, sizeof word);
  return _mm_crc32_u64(crc, word);
}

/// Register `crc` as it is after kBytes of zeros. The product is one power high and the crc32
/// instruction multiplies by x^32, hence the 33.
template <unsigned kBytes>
AIRDMA_PCLMUL_INLINE std::uint64_t shifted(std::uint64_t crc) {
  const __m128i factor =
      _mm_cvtsi32_si128(static_cast<int>(power_of_x<kPolynomial>(8 * kBytes - 33)));
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(crc)), factor, 0);
  return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product)));
}

template <bool kCopy, unsigned kStream>
AIRDMA_PCLMUL_INLINE std::uint64_t three_streams(std::uint64_t crc, Cursor<kCopy>& at) {
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
AIRDMA_PCLMUL_INLINE std::uint32_t one_stream(std::uint64_t crc, Cursor<kCopy>& at) {
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
AIRDMA_PCLMUL std::uint32_t run_sse(std::uint32_t crc, std::byte* to, Bytes from) {
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

// AVX-512 with VPCLMULQDQ: the last lane goes through the crc32 instruction, which is the final
// reduction.

AIRDMA_AVX512_INLINE std::uint64_t reduce(__m128i lane) {
  const std::uint64_t crc = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(lane)));
  return _mm_crc32_u64(crc, static_cast<std::uint64_t>(_mm_extract_epi64(lane, 1)));
}

template <bool kCopy>
AIRDMA_AVX512 std::uint32_t run_avx512(std::uint32_t crc, std::byte* to, Bytes from) {
  Cursor<kCopy> at{from.data(), to, from.size()};
  std::uint64_t wide = ~crc;
  if (at.left >= 256) wide = reduce(fold_by_64<kPolynomial, kCopy>(~crc, at));
  return ~one_stream<kCopy>(wide, at);
}

std::uint32_t extend_avx512(std::uint32_t crc, Bytes bytes) {
  return run_avx512<false>(crc, nullptr, bytes);
}
std::uint32_t copy_avx512(std::uint32_t crc, std::byte* to, Bytes from) {
  return run_avx512<true>(crc, to, from);
}

#elif defined(__aarch64__)

// ARMv8: the CRC32C instructions, one stream.

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

#endif

constexpr Crc32cVariant kVariants[] = {
#if defined(__x86_64__)
    {"avx512", has_avx512, extend_avx512, copy_avx512},
    {"sse42", has_pclmul, extend_sse, copy_sse},
#elif defined(__aarch64__)
    {"arm-crc", has_arm_crc, extend_arm, copy_arm},
#endif
    {"portable", always, extend_portable, copy_portable},
};

constinit std::atomic<const Crc32cVariant*> best_variant{nullptr};

const Crc32cVariant& best() { return best_of<Crc32cVariant>(best_variant, kVariants); }

}  // namespace

std::uint32_t crc32c_extend(std::uint32_t crc, Bytes bytes) { return best().extend(crc, bytes); }

std::uint32_t crc32c_copy(std::uint32_t crc, std::byte* to, Bytes from) {
  return best().copy(crc, to, from);
}

std::span<const Crc32cVariant> crc32c_variants() { return kVariants; }

}  // namespace airdma::wire
