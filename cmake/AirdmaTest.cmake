# SPDX-License-Identifier: MIT
# airdma_gtest(<name> LABEL <label> [SOURCES <file>...] [DEPS <target>...] [TIMEOUT <seconds>]
#   [DEFINES <macro>...]): a GoogleTest program whose cases are tests of their own, under one
#   label: unit, sim, abi, conformance, interop or fuzz. scripts/run-tests.sh chooses by label
#   what runs together.
# airdma_unit_tests(<layer>): the program of all tests/unit/<layer>/*_test.cc; nothing when there
#   are none. A layer's own archive and those it depends on come with it; what else they need,
#   tests/unit/<layer>/unit.cmake adds to the target unit_<layer>_test.
#
# The product builds without GoogleTest: then there are no tests, and configure says so.
find_package(GTest QUIET)
if(NOT GTest_FOUND)
  message(STATUS "GoogleTest not found: no tests (scripts/install-deps.sh test brings it)")
endif()
include(GoogleTest)

function(airdma_gtest name)
  if(NOT GTest_FOUND)
    return()
  endif()
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS;DEFINES" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # Next to the other test programs, away from the tree that is installed.
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/bin)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} airdma_flags GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  # What is tested is optimised, in its archives; GoogleTest's macros take long to be.
  if(ARG_LABEL STREQUAL "unit")
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  target_compile_definitions(${name} PRIVATE
    AIRDMA_SOURCE_DIR="${PROJECT_SOURCE_DIR}" AIRDMA_BINARY_DIR="${CMAKE_BINARY_DIR}"
    ${ARG_DEFINES})
  gtest_discover_tests(${name} TEST_PREFIX ${ARG_LABEL}/ DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()

function(airdma_unit_tests path)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/unit/${path}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" name ${path})
  airdma_gtest(unit_${name}_test LABEL unit SOURCES ${sources} DEPS airdma_${name})
  include(${PROJECT_SOURCE_DIR}/tests/unit/${path}/unit.cmake OPTIONAL)
endfunction()
