// SPDX-License-Identifier: MIT
// Objects with more than one handle: ibv_import_* makes further ones in contexts of the same
// command descriptor. Any of them ends the object, and with it all of its handles; ibv_unimport_*
// ends one handle.
#pragma once

#include <vector>

#include "verbs/state.h"

namespace airdma::verbs {

/// All handles to the object that this one is a handle to, itself included. With `control` held.
std::vector<Pd*> shared_handles(State& all, Pd& pd);
std::vector<Mr*> shared_handles(State& all, Mr& mr);
std::vector<Dm*> shared_handles(State& all, Dm& dm);

}  // namespace airdma::verbs
