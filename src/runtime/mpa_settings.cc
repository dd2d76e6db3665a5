// SPDX-License-Identifier: MIT
#include "runtime/mpa_settings.h"

#include <stdlib.h>

#include <charconv>
#include <string_view>
#include <system_error>

#include "base/log.h"

namespace airdma::runtime {
namespace {

template <class T>
struct Word {
  std::string_view text;
  T value;
};

constexpr Word<mpa::CrcPolicy> kCrcWords[] = {{"on", mpa::CrcPolicy::kPrefer},
                                              {"off", mpa::CrcPolicy::kOff},
                                              {"require", mpa::CrcPolicy::kRequire},
                                              {"refuse", mpa::CrcPolicy::kRefuse}};
constexpr Word<bool> kSwitchWords[] = {{"on", true}, {"off", false}};
constexpr Word<std::optional<mpa::Rtr>> kRtrWords[] = {{"write", mpa::Rtr::kWrite},
                                                       {"read", mpa::Rtr::kRead},
                                                       {"send", mpa::Rtr::kSend},
                                                       {"none", mpa::Rtr::kNone}};
constexpr Word<std::uint8_t> kRevisionWords[] = {{"1", std::uint8_t{1}}, {"2", std::uint8_t{2}}};

void complain(const char* name, std::string_view value) {
  AIRDMA_LOG_ERROR("%s=%.*s is not a value it can have; ignored", name,
                   static_cast<int>(value.size()), value.data());
}

template <class T, std::size_t N>
void read_word(const char* (*value_of)(const char*), const char* name, const Word<T> (&words)[N],
               T& into) {
  const char* text = value_of(name);
  if (text == nullptr || *text == '\0') return;
  for (const Word<T>& word : words) {
    if (word.text == text) {
      into = word.value;
      return;
    }
  }
  complain(name, text);
}

void read_fpdu_limit(const char* (*value_of)(const char*), FpduLimit& limit) {
  constexpr const char* kName = "AIRDMA_MPA_MAX_FPDU";
  const char* text = value_of(kName);
  if (text == nullptr || *text == '\0') return;
  const std::string_view value(text);
  if (value == "mss") {
    limit.kind = FpduLimit::Kind::kSegment;
    return;
  }
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
  const bool whole = error == std::errc{} && end == value.data() + value.size();
  if (!whole || bytes < kLeastFpduBytes || bytes > kMostFpduBytes) return complain(kName, value);
  limit = {FpduLimit::Kind::kBytes, bytes};
}

}  // namespace

void MpaSettings::apply(mpa::Offer& offer) const {
  offer.crc = crc;
  offer.markers = markers;
  offer.rtr = rtr;
  offer.revision = revision;
  offer.large_fpdus = true;
  offer.reads_from_the_start = true;
}

MpaSettings read_mpa_settings(const char* (*value_of)(const char* name)) {
  MpaSettings settings;
  read_word(value_of, "AIRDMA_MPA_CRC", kCrcWords, settings.crc);
  read_word(value_of, "AIRDMA_MPA_MARKERS", kSwitchWords, settings.markers);
  read_word(value_of, "AIRDMA_MPA_RTR", kRtrWords, settings.rtr);
  read_word(value_of, "AIRDMA_MPA_REVISION", kRevisionWords, settings.revision);
  read_fpdu_limit(value_of, settings.fpdu);
  return settings;
}

const MpaSettings& mpa_settings() {
  // secure_getenv: whoever starts a set-user-ID program does not choose its protocol.
  static const MpaSettings instance =
      read_mpa_settings([](const char* name) -> const char* { return ::secure_getenv(name); });
  return instance;
}

}  // namespace airdma::runtime
