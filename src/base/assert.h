// SPDX-License-Identifier: MIT
// AIRDMA_ASSERT states what our own code guarantees. Nothing a caller or a peer does may reach it.
#pragma once

#ifdef NDEBUG
#define AIRDMA_ASSERT(condition) ((void)sizeof(condition))
#else
#define AIRDMA_ASSERT(condition) ((condition) ? (void)0 : __builtin_trap())
#endif
