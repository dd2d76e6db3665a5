// SPDX-License-Identifier: MIT
#include "tests/interop/replay/replay.h"

namespace airdma::interop {
namespace {

/// Why a connection is left out; "" for one that is replayed.
std::string left_out(ConnectionKind kind) {
  switch (kind) {
    case ConnectionKind::kIwarp:
      return "";
    case ConnectionKind::kNoBytes:
      return "left out: no bytes were exchanged";
    case ConnectionKind::kNotIwarp:
      return "left out: TCP, but not iWARP (no MPA request)";
    case ConnectionKind::kMidway:
      return "left out: iWARP, but the capture starts after its MPA request";
  }
  return "";
}

void add(FileReport& file, const RoleReport& role) {
  file.text += to_text(role);
  switch (role.verdict) {
    case Verdict::kPass:
      ++file.passed;
      break;
    case Verdict::kFail:
      ++file.failed;
      break;
    case Verdict::kNotSupported:
      ++file.not_supported;
      break;
  }
}

}  // namespace

FileReport replay_connections(const std::string& name, const std::vector<Connection>& connections) {
  FileReport report;
  bool any = false;
  for (std::size_t i = 0; i < connections.size(); ++i) {
    const ConnectionKind kind = kind_of(connections[i]);
    report.text += name + ": connection " + std::to_string(i + 1) + ", " + ends_of(connections[i]) +
                   (left_out(kind).empty() ? "" : ", ") + left_out(kind) + "\n";
    if (kind != ConnectionKind::kIwarp) continue;
    any = true;
    if (connections[i].lost_bytes != 0) {
      report.text += "  (" + std::to_string(connections[i].lost_bytes) +
                     " bytes after a gap in the capture are not looked at)\n";
    }
    const Conversation conversation = read_conversation(connections[i]);
    for (const Role role : {Role::kInitiator, Role::kResponder}) {
      add(report, replay(conversation, role));
    }
  }
  const bool failed = report.failed != 0;
  report.text += name + ": " +
                 (!any     ? std::string("no iWARP connection")
                  : failed ? std::string("FAIL")
                           : std::string("PASS")) +
                 " (" + std::to_string(report.passed) + " passed, " +
                 std::to_string(report.failed) + " failed, " +
                 std::to_string(report.not_supported) + " not supported)\n";
  return report;
}

FileReport replay_file(const std::string& path) {
  const auto connections = read_connections(path);
  if (connections) return replay_connections(path, *connections);
  FileReport report;
  report.unreadable = true;
  report.text = path + ": " + connections.error() + "\n";
  return report;
}

}  // namespace airdma::interop
