// SPDX-License-Identifier: MIT
// Names and rates of the enumerations in <infiniband/verbs.h>: pure tables. Every pointer is a
// literal. A value outside an enumeration gets "unknown", never NULL.
#pragma once

#include <infiniband/verbs.h>

namespace airdma::verbs {

/// Text of a completion status; the words are the ones programs print and parse.
const char* wc_status_str(ibv_wc_status status) noexcept;
const char* node_type_str(ibv_node_type type) noexcept;
const char* port_state_str(ibv_port_state state) noexcept;
const char* event_type_str(ibv_event_type event) noexcept;

/// Multiple of 2.5 Gbit/s, -1 where the rate is none.
int rate_to_mult(ibv_rate rate) noexcept;
/// Mbit/s, -1 for IBV_RATE_MAX and unknown values.
int rate_to_mbps(ibv_rate rate) noexcept;
/// The rate with exactly this multiple or speed, IBV_RATE_MAX if there is none.
ibv_rate mult_to_rate(int mult) noexcept;
ibv_rate mbps_to_rate(int mbps) noexcept;

}  // namespace airdma::verbs
