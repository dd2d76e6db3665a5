# SPDX-License-Identifier: MIT
# Guarded accesses run inside the CRC kernels.
target_link_libraries(unit_io_test PRIVATE airdma_wire)
