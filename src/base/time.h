// SPDX-License-Identifier: MIT
// Time as a parameter. Engines never read a clock: whoever drives them says what time it is, so
// the simulator can run hours of it in a second.
#pragma once

#include <chrono>

namespace airdma {

struct MonotonicClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicClock>;
  static constexpr bool is_steady = true;
};

using Duration = MonotonicClock::duration;
using Time = MonotonicClock::time_point;

}  // namespace airdma
