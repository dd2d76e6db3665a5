# SPDX-License-Identifier: MIT
# isa-l's CRC32C is the oracle of ours where it is installed.
find_library(AIRDMA_ISAL isal)
if(AIRDMA_ISAL)
  target_link_libraries(unit_wire_test PRIVATE ${AIRDMA_ISAL})
  target_compile_definitions(unit_wire_test PRIVATE AIRDMA_HAVE_ISAL)
endif()
