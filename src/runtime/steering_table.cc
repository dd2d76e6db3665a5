// SPDX-License-Identifier: MIT
#include "runtime/steering_table.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "base/be.h"
#include "io/local_socket.h"
#include "wire/bth.h"
#include "wire/ib_cm.h"
#include "wire/ib_cm_layout.h"

namespace airdma::runtime {
namespace {

constexpr std::string_view kPrefix = "airdma/";
constexpr std::string_view kBlockPrefix = "airdma/udp/";
constexpr std::string_view kServicePrefix = "airdma/cmo/";

// Limits: the kernel takes a program of 4096 instructions at most, and of some 2500 where its
// memory for options is small. What does not fit is passed on by the processes.
constexpr std::size_t kMostBlocks = 600;
constexpr std::size_t kMostServices = 300;

/// Takes the number in front of the next '/' off the text.
std::optional<std::uint32_t> take_number(std::string_view& text, int base) {
  std::uint32_t value = 0;
  const std::string_view part = text.substr(0, text.find('/'));
  const auto result = std::from_chars(part.data(), part.data() + part.size(), value, base);
  if (part.empty() || result.ec != std::errc{} || result.ptr != part.data() + part.size()) {
    return std::nullopt;
  }
  text.remove_prefix(std::min(part.size() + 1, text.size()));
  return value;
}

/// The same for an index, which may be '-'. False when it is neither.
bool take_index(std::string_view& text, std::optional<std::uint32_t>& index) {
  if (text == "-" || text.starts_with("-/")) {
    text.remove_prefix(std::min<std::size_t>(2, text.size()));
    return true;
  }
  index = take_number(text, 10);
  return index.has_value();
}

std::string text_of(const std::optional<std::uint32_t>& index) {
  return index ? std::to_string(*index) : "-";
}

}  // namespace

SteeringTable SteeringTable::read() {
  SteeringTable table;
  for (const std::string& name : io::local_names(kPrefix)) table.add(name);
  table.sort();
  return table;
}

void SteeringTable::add(std::string_view name) {
  std::string_view rest = name;
  if (name.starts_with(kBlockPrefix)) {
    rest.remove_prefix(kBlockPrefix.size());
    Block entry;
    const auto block = take_number(rest, 10);
    if (!block || !take_index(rest, entry.indices.v4) || !take_index(rest, entry.indices.v6)) {
      return;
    }
    entry.block = *block;
    entry.name = name;
    blocks.push_back(std::move(entry));
  } else if (name.starts_with(kServicePrefix)) {
    rest.remove_prefix(kServicePrefix.size());
    const auto service = take_number(rest, 16);
    const auto block = take_number(rest, 10);
    if (service && block) services.push_back({*service, *block});
  }
}

void SteeringTable::sort() {
  std::ranges::sort(blocks, {}, [](const Block& one) { return std::tie(one.block, one.name); });
  std::ranges::sort(services, {},
                    [](const Service& one) { return std::tie(one.service, one.block); });
}

std::string SteeringTable::name_of(std::uint32_t block, const SteeringIndices& indices) {
  return std::string(kBlockPrefix) + std::to_string(block) + "/" + text_of(indices.v4) + "/" +
         text_of(indices.v6);
}

std::string SteeringTable::name_of(const Service& service) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*s%x/%u", static_cast<int>(kServicePrefix.size()),
                kServicePrefix.data(), service.service, service.block);
  return text;
}

// --- Probes ---

namespace {
struct ProbeLayout {
  be16 mark;
  be16 index;
  be64 sender;
  be64 round;
};
static_assert(sizeof(ProbeLayout) == SteeringProbe::kBytes);
}  // namespace

void SteeringProbe::write(std::byte (&packet)[kBytes]) const {
  const ProbeLayout layout{.mark = kMark, .index = index, .sender = sender, .round = round};
  std::memcpy(packet, &layout, sizeof layout);
}

std::optional<SteeringProbe> SteeringProbe::read(const std::byte* packet, std::size_t bytes) {
  ProbeLayout layout;
  if (bytes != sizeof layout) return std::nullopt;
  std::memcpy(&layout, packet, sizeof layout);
  if (layout.mark.get() != kMark) return std::nullopt;
  return SteeringProbe{layout.index.get(), layout.sender.get(), layout.round.get()};
}

// --- The program ---

namespace {

// Offsets in the UDP payload of a management datagram: BTH and DETH, then its header, then the
// message.
constexpr std::uint32_t kMad = sizeof(wire::Bth) + sizeof(wire::Deth);
constexpr std::uint32_t kMessage = kMad + sizeof(wire::MadHeader);
constexpr std::uint32_t kQpnWord = offsetof(wire::Bth, qpn_word);
constexpr std::uint32_t kAttribute = kMad + offsetof(wire::MadHeader, attribute_id);
// The lower half of the service id. It lies at the same place in both messages that have one.
constexpr std::uint32_t kServiceWord = kMessage + offsetof(wire::cm_layout::Req, service_id) + 4;
static_assert(offsetof(wire::cm_layout::Req, service_id) ==
              offsetof(wire::cm_layout::SidrReq, service_id));
constexpr std::uint32_t kRemoteId = kMessage + offsetof(wire::cm_layout::Ids, remote_id);
constexpr std::uint32_t kRequestId = kMessage + offsetof(wire::cm_layout::SidrRep, request_id);

/// Appends instructions. Conditional jumps reach few instructions; what is far is reached by jumps
/// that are completed once their target is known.
class Assembler {
 public:
  void load_half(std::uint32_t offset) { add(BPF_LD | BPF_H | BPF_ABS, offset); }
  void load_word(std::uint32_t offset) { add(BPF_LD | BPF_W | BPF_ABS, offset); }
  void load_random() {
    load_word(static_cast<std::uint32_t>(SKF_AD_OFF) + static_cast<std::uint32_t>(SKF_AD_RANDOM));
  }
  void compute(unsigned operation, std::uint32_t value) { add(BPF_ALU | BPF_K | operation, value); }
  void answer(std::uint32_t value) { add(BPF_RET | BPF_K, value); }
  void answer_value() { add(BPF_RET | BPF_A, 0); }
  /// Skips instructions when the value is, and when it is not, `value`.
  void branch(std::uint32_t value, std::uint8_t if_equal, std::uint8_t if_not) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, if_equal, if_not);
  }
  void answer_if(std::uint32_t value, std::uint32_t result) {
    branch(value, 0, 1);
    answer(result);
  }
  std::size_t jump() {
    add(BPF_JMP | BPF_JA, 0);
    return code_.size() - 1;
  }
  void land(std::size_t jump) {
    code_[jump].k = static_cast<std::uint32_t>(code_.size() - jump - 1);
  }
  std::vector<sock_filter> take() { return std::move(code_); }

 private:
  void add(unsigned code, std::uint32_t k, std::uint8_t jt = 0, std::uint8_t jf = 0) {
    code_.push_back({static_cast<std::uint16_t>(code), jt, jf, k});
  }
  std::vector<sock_filter> code_;
};

struct Target {
  std::uint32_t key;
  std::uint32_t index;
};

std::vector<Target> block_targets(const SteeringTable& table, bool v6) {
  std::vector<Target> targets;
  for (const auto& entry : table.blocks) {
    const auto& index = v6 ? entry.indices.v6 : entry.indices.v4;
    if (index && targets.size() < kMostBlocks) targets.push_back({entry.block, *index});
  }
  return targets;
}

std::vector<Target> service_targets(const SteeringTable& table, const std::vector<Target>& blocks) {
  std::vector<Target> targets;
  for (const auto& entry : table.services) {
    const auto owner = std::ranges::find(blocks, entry.block, &Target::key);
    if (owner == blocks.end() || targets.size() == kMostServices) continue;
    targets.push_back({entry.service, owner->index});
  }
  return targets;
}

void add_probe_answer(Assembler& code) {
  code.load_half(0);
  code.branch(SteeringProbe::kMark, 0, 2);
  code.load_half(2);
  code.answer_value();
}

/// Ends with the block of the receiver in hand, but for requests: those it answers.
void add_management(Assembler& code, const std::vector<Target>& services, std::size_t members) {
  using wire::CmAttribute;
  code.load_half(kAttribute);
  code.branch(static_cast<std::uint32_t>(CmAttribute::kSidrRep), 0, 2);
  code.load_word(kRequestId);
  const std::size_t to_id = code.jump();
  code.branch(static_cast<std::uint32_t>(CmAttribute::kReq), 2, 0);
  code.branch(static_cast<std::uint32_t>(CmAttribute::kSidrReq), 1, 0);
  const std::size_t to_others = code.jump();
  code.load_word(kServiceWord);
  for (const Target& target : services) code.answer_if(target.key, target.index);
  code.load_random();
  code.compute(BPF_MOD, static_cast<std::uint32_t>(std::max<std::size_t>(members, 1)));
  code.answer_value();
  code.land(to_others);
  code.load_word(kRemoteId);
  code.land(to_id);
  code.compute(BPF_RSH, 20);
}

}  // namespace

std::vector<sock_filter> steering_program(const SteeringTable& table, bool v6) {
  constexpr std::uint32_t kNoSocket = 0xffffffff;
  const auto blocks = block_targets(table, v6);
  Assembler code;
  add_probe_answer(code);
  code.load_word(kQpnWord);
  code.compute(BPF_AND, 0xffffff);
  code.branch(wire::kManagementQpn.value(), 2, 0);
  code.compute(BPF_RSH, 12);
  const std::size_t to_blocks = code.jump();
  add_management(code, service_targets(table, blocks), blocks.size());
  code.land(to_blocks);
  for (const Target& target : blocks) code.answer_if(target.key, target.index);
  code.answer(kNoSocket);
  return code.take();
}

}  // namespace airdma::runtime
