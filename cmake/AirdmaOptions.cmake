# SPDX-License-Identifier: MIT
# Options and the compile flags every target shares.
option(AIRDMA_TESTS "Build the tests" ON)
option(AIRDMA_TOOLS "Build the command line tool" ON)
option(AIRDMA_EXAMPLES "Build the examples" ON)
option(AIRDMA_BENCH "Build the benchmarks" OFF)
option(AIRDMA_FUZZ "Build libFuzzer targets (needs clang)" OFF)
option(AIRDMA_WERROR "Warnings are errors" OFF)
set(AIRDMA_SANITIZE "" CACHE STRING "Value of -fsanitize=, empty for none")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# -O3 buys nothing measurable here and takes a quarter longer to build.
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# The same layout stands in the build folder and in an installation.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# The way of a small message goes through a dozen files: as one they take a quarter less time. Only
# what is installed is built like this, and its archives hold plain machine code as well, for tests
# and tools.
set(airdma_lto "")
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
    AND NOT AIRDMA_SANITIZE)
  set(airdma_lto -flto=auto -ffat-lto-objects)
endif()

find_program(AIRDMA_CCACHE ccache)
if(AIRDMA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${AIRDMA_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${AIRDMA_CCACHE})
endif()

add_library(airdma_flags INTERFACE)
target_compile_options(airdma_flags INTERFACE
  -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>
  $<$<BOOL:${AIRDMA_WERROR}>:-Werror>
  # g++ 12 finds these in its own containers once they are inlined: to be seen, not to stop at.
  $<$<BOOL:${AIRDMA_WERROR}>:-Wno-error=array-bounds>
  $<$<BOOL:${AIRDMA_WERROR}>:-Wno-error=stringop-overflow>
  $<$<BOOL:${AIRDMA_WERROR}>:-Wno-error=restrict>
  -fno-strict-aliasing)
target_include_directories(airdma_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(airdma_flags INTERFACE _GNU_SOURCE)
if(AIRDMA_SANITIZE)
  target_compile_options(airdma_flags INTERFACE -fsanitize=${AIRDMA_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(airdma_flags INTERFACE -fsanitize=${AIRDMA_SANITIZE})
endif()
