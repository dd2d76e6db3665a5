# SPDX-License-Identifier: MIT
# The installed tree: bin/airdma, lib/airdma/{libibverbs,librdmacm}.so.1, share/man.
