// SPDX-License-Identifier: MIT
// The handler of SIGSEGV and SIGBUS that ends guarded accesses (base/guarded_copy.h) whose memory
// the program took away. Every other fault goes to the disposition that was there before, as the
// kernel would have delivered it. docs/decisions/0005 says why the library has one.
#pragma once

namespace airdma::io {

/// Makes sure that the handler is in place. Cheap enough for a control call; a program may have
/// replaced the handler since the last time: then the program's becomes the one to forward to.
/// Does nothing when AIRDMA_FAULT_GUARD=off was set at the first call.
void watch_faults();

}  // namespace airdma::io
