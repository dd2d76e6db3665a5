# SPDX-License-Identifier: MIT
# isa-l and zlib are the oracles of our CRCs where they are installed.
find_library(AIRDMA_ISAL isal)
if(AIRDMA_ISAL)
  target_link_libraries(unit_wire_test PRIVATE ${AIRDMA_ISAL})
  target_compile_definitions(unit_wire_test PRIVATE AIRDMA_HAVE_ISAL)
endif()
find_package(ZLIB)
if(ZLIB_FOUND)
  target_link_libraries(unit_wire_test PRIVATE ZLIB::ZLIB)
  target_compile_definitions(unit_wire_test PRIVATE AIRDMA_HAVE_ZLIB)
endif()
