// SPDX-License-Identifier: MIT
// The CRC32 kernels, each also as a copy that computes on the way. x86 has no instruction for this
// polynomial, so carry-less multiplication does all of it there.
#include "wire/crc32.h"

#include "wire/crc_kernels.h"

namespace airdma::wire {
namespace {

using namespace crc;

constexpr Tables kTables = make_tables<kCrc32Polynomial>();

std::uint32_t extend_portable(std::uint32_t crc, Bytes bytes) {
  return extend_by_tables(kTables, crc, bytes);
}
std::uint32_t copy_portable(std::uint32_t crc, std::byte* to, Bytes from) {
  return copy_by_tables(kTables, crc, to, from);
}

/// The carry-less product as a word of 64 bits, one bit at a time without a branch.
std::uint64_t product(std::uint32_t a, std::uint32_t b) {
  std::uint64_t sum = 0;
  for (unsigned bit = 0; bit < 32; ++bit) {
    sum ^= (std::uint64_t{a} << bit) & (std::uint64_t{0} - (b >> bit & 1));
  }
  return sum << 1;
}

std::uint32_t multiply_portable(std::uint32_t a, std::uint32_t b) {
  return step_by_tables(kTables, product(a, b));
}

#if defined(__x86_64__)

// The last step adds that multiple of the polynomial which clears the n bits gone by; the 32 bits
// above them are the register. In the reflected order the clearing goes from bit 0 up, so the
// factor is those n bits times the inverse of the polynomial modulo y^n, y being one bit upwards.

/// The polynomial with the term x^32, which is bit 0.
constexpr std::uint64_t kWhole = std::uint64_t{kCrc32Polynomial} << 1 | 1;

consteval std::uint64_t inverse() {
  std::uint64_t result = 1;
  std::uint64_t product = kWhole;
  for (unsigned bit = 1; bit < 64; ++bit) {
    if ((product >> bit & 1) == 0) continue;
    result |= std::uint64_t{1} << bit;
    product ^= kWhole << bit;
  }
  return result;
}
constexpr std::uint64_t kInverse = inverse();

AIRDMA_PCLMUL_INLINE __m128i step_factors() {
  return _mm_set_epi64x(std::bit_cast<long long>(kWhole), std::bit_cast<long long>(kInverse));
}
AIRDMA_PCLMUL_INLINE __m128i word_of(std::uint64_t word) {
  return _mm_cvtsi64_si128(std::bit_cast<long long>(word));
}

/// The register after eight bytes, the register before already added to the low half of `word`,
/// whose high half is ignored. In bits 64 to 95 of the result, and no other above 63.
AIRDMA_PCLMUL_INLINE __m128i step8(__m128i word) {
  const __m128i factor = _mm_clmulepi64_si128(word, step_factors(), 0x00);
  return _mm_clmulepi64_si128(factor, step_factors(), 0x10);
}
AIRDMA_PCLMUL_INLINE std::uint32_t register_of(__m128i stepped) {
  return static_cast<std::uint32_t>(_mm_extract_epi32(stepped, 2));
}

/// The register after n bytes, 1 to 4, of `word`.
AIRDMA_PCLMUL_INLINE std::uint32_t step_few(std::uint32_t crc, std::uint32_t word, unsigned n) {
  const std::uint64_t mask = (std::uint64_t{1} << 8 * n) - 1;
  const std::uint64_t sum = crc ^ word;
  const __m128i factor = _mm_clmulepi64_si128(word_of(sum & mask), step_factors(), 0x00);
  const __m128i kept = _mm_and_si128(factor, word_of(mask));
  const __m128i multiple = _mm_clmulepi64_si128(kept, step_factors(), 0x10);
  const auto cleared = static_cast<std::uint64_t>(_mm_cvtsi128_si64(multiple)) ^ sum;
  return static_cast<std::uint32_t>(cleared >> 8 * n);
}

/// A lane of 16 bytes reduced to the register.
AIRDMA_PCLMUL_INLINE std::uint32_t reduce(__m128i lane) {
  return register_of(step8(_mm_srli_si128(_mm_xor_si128(lane, step8(lane)), 8)));
}

template <bool kCopy>
AIRDMA_PCLMUL_INLINE __m128i take16(const Cursor<kCopy>& at, std::size_t offset) {
  const __m128i data = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at.from + offset));
  if constexpr (kCopy) _mm_storeu_si128(reinterpret_cast<__m128i*>(at.to + offset), data);
  return data;
}

template <unsigned kBits>
AIRDMA_PCLMUL_INLINE __m128i fold16(__m128i lane, __m128i data) {
  const __m128i factors =
      _mm_set_epi64x(fold_high<kCrc32Polynomial>(kBits), fold_low<kCrc32Polynomial>(kBits));
  const __m128i low = _mm_clmulepi64_si128(lane, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(lane, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), data);
}

/// Four lanes side by side as long as 64 bytes are left; at least that many must be.
template <bool kCopy>
AIRDMA_PCLMUL_INLINE __m128i fold_four(__m128i first, Cursor<kCopy>& at) {
  __m128i a = _mm_xor_si128(take16<kCopy>(at, 0), first);
  __m128i b = take16<kCopy>(at, 16);
  __m128i c = take16<kCopy>(at, 32);
  __m128i d = take16<kCopy>(at, 48);
  at.advance(64);
  while (at.left >= 64) {
    a = fold16<512>(a, take16<kCopy>(at, 0));
    b = fold16<512>(b, take16<kCopy>(at, 16));
    c = fold16<512>(c, take16<kCopy>(at, 32));
    d = fold16<512>(d, take16<kCopy>(at, 48));
    at.advance(64);
  }
  c = fold16<256>(a, c);
  d = fold16<256>(b, d);
  return fold16<128>(c, d);
}

/// The register after the last bytes, fewer than 16.
template <bool kCopy>
AIRDMA_PCLMUL_INLINE std::uint32_t last_bytes(std::uint32_t crc, Cursor<kCopy>& at) {
  if (at.left >= 8) {
    std::uint64_t word;
    std::memcpy(&word, at.from, sizeof word);
    if constexpr (kCopy) std::memcpy(at.to, &word, sizeof word);
    crc = register_of(step8(word_of(word ^ crc)));
    at.advance(8);
  }
  if (at.left >= 4) {
    std::uint32_t word;
    std::memcpy(&word, at.from, sizeof word);
    if constexpr (kCopy) std::memcpy(at.to, &word, sizeof word);
    crc = step_few(crc, word, 4);
    at.advance(4);
  }
  if (at.left == 0) return crc;
  std::uint32_t word = 0;
  for (unsigned i = 0; i < at.left; ++i) {
    if constexpr (kCopy) at.to[i] = at.from[i];
    word |= std::to_integer<std::uint32_t>(at.from[i]) << 8 * i;
  }
  return step_few(crc, word, static_cast<unsigned>(at.left));
}

template <bool kCopy>
AIRDMA_PCLMUL_INLINE std::uint32_t finish(__m128i lane, Cursor<kCopy>& at) {
  for (; at.left >= 16; at.advance(16)) lane = fold16<128>(lane, take16<kCopy>(at, 0));
  return last_bytes<kCopy>(reduce(lane), at);
}

/// Everything, by lanes of 16 bytes.
template <bool kCopy>
AIRDMA_PCLMUL_INLINE std::uint32_t run16(std::uint32_t crc, Cursor<kCopy>& at) {
  if (at.left < 16) return last_bytes<kCopy>(crc, at);
  const __m128i first = _mm_cvtsi32_si128(static_cast<int>(crc));
  if (at.left >= 64) return finish<kCopy>(fold_four<kCopy>(first, at), at);
  const __m128i lane = _mm_xor_si128(take16<kCopy>(at, 0), first);
  at.advance(16);
  return finish<kCopy>(lane, at);
}

template <bool kCopy>
AIRDMA_PCLMUL std::uint32_t run_pclmul(std::uint32_t crc, std::byte* to, Bytes from) {
  Cursor<kCopy> at{from.data(), to, from.size()};
  return ~run16<kCopy>(~crc, at);
}

std::uint32_t extend_pclmul(std::uint32_t crc, Bytes bytes) {
  return run_pclmul<false>(crc, nullptr, bytes);
}
std::uint32_t copy_pclmul(std::uint32_t crc, std::byte* to, Bytes from) {
  return run_pclmul<true>(crc, to, from);
}

AIRDMA_PCLMUL std::uint32_t multiply_pclmul(std::uint32_t a, std::uint32_t b) {
  const __m128i product = _mm_clmulepi64_si128(word_of(a), word_of(std::uint64_t{b} << 1), 0x00);
  return register_of(step8(product));
}

template <bool kCopy>
AIRDMA_AVX512 std::uint32_t run_avx512(std::uint32_t crc, std::byte* to, Bytes from) {
  Cursor<kCopy> at{from.data(), to, from.size()};
  if (at.left < 256) return ~run16<kCopy>(~crc, at);
  return ~finish<kCopy>(fold_by_64<kCrc32Polynomial, kCopy>(~crc, at), at);
}

std::uint32_t extend_avx512(std::uint32_t crc, Bytes bytes) {
  return run_avx512<false>(crc, nullptr, bytes);
}
std::uint32_t copy_avx512(std::uint32_t crc, std::byte* to, Bytes from) {
  return run_avx512<true>(crc, to, from);
}

#elif defined(__aarch64__)

// ARMv8: the CRC32 instructions, one stream.

template <bool kCopy>
AIRDMA_ARM_CRC std::uint32_t run_arm(std::uint32_t crc, std::byte* to, Bytes from) {
  crc = ~crc;
  Cursor<kCopy> at{from.data(), to, from.size()};
  for (; at.left >= 8; at.advance(8)) {
    if constexpr (kCopy) std::memcpy(at.to, at.from, 8);
    crc = __crc32d(crc, load_le64(at.from));
  }
  for (; at.left > 0; at.advance(1)) {
    if constexpr (kCopy) *at.to = *at.from;
    crc = __crc32b(crc, static_cast<std::uint8_t>(*at.from));
  }
  return ~crc;
}

std::uint32_t extend_arm(std::uint32_t crc, Bytes bytes) {
  return run_arm<false>(crc, nullptr, bytes);
}
std::uint32_t copy_arm(std::uint32_t crc, std::byte* to, Bytes from) {
  return run_arm<true>(crc, to, from);
}

AIRDMA_ARM_CRC std::uint32_t multiply_arm(std::uint32_t a, std::uint32_t b) {
  return __crc32d(0, product(a, b));
}

#endif

constexpr Crc32Variant kVariants[] = {
#if defined(__x86_64__)
    {"avx512", has_avx512, extend_avx512, copy_avx512, multiply_pclmul},
    {"pclmul", has_pclmul, extend_pclmul, copy_pclmul, multiply_pclmul},
#elif defined(__aarch64__)
    {"arm-crc", has_arm_crc, extend_arm, copy_arm, multiply_arm},
#endif
    {"portable", always, extend_portable, copy_portable, multiply_portable},
};

constinit std::atomic<const Crc32Variant*> best_variant{nullptr};

const Crc32Variant& best() { return best_of<Crc32Variant>(best_variant, kVariants); }

}  // namespace

std::uint32_t crc32_extend(std::uint32_t crc, Bytes bytes) { return best().extend(crc, bytes); }

std::uint32_t crc32_copy(std::uint32_t crc, std::byte* to, Bytes from) {
  return best().copy(crc, to, from);
}

std::uint32_t crc32_multiply(std::uint32_t a, std::uint32_t b) { return best().multiply(a, b); }

std::span<const Crc32Variant> crc32_variants() { return kVariants; }

}  // namespace airdma::wire
