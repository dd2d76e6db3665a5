// SPDX-License-Identifier: MIT
// What the C programs of this folder share: checks that count, by value and by errno.
#ifndef AIRDMA_TESTS_ABI_CHECK_H
#define AIRDMA_TESTS_ABI_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int failures;
static int checks;

static inline void check_at(int line, int good, const char* what) {
  checks++;
  if (!good) {
    printf("line %d failed: %s (errno %d, %s)\n", line, what, errno, strerror(errno));
    failures++;
  }
}

#define CHECK(condition) check_at(__LINE__, (condition), #condition)

// The three conventions. errno is spoiled first: it must be the call that sets it.
#define FAILS_WITH_ERRNO_VALUE(value, call) \
  do {                                      \
    errno = 0;                              \
    CHECK((call) == (value));               \
  } while (0)
#define FAILS_WITH_NULL(value, call)           \
  do {                                         \
    errno = 0;                                 \
    CHECK((call) == NULL && errno == (value)); \
  } while (0)
#define FAILS_WITH_MINUS_ONE(value, call)    \
  do {                                       \
    errno = 0;                               \
    CHECK((call) == -1 && errno == (value)); \
  } while (0)

static inline int conclude(void) {
  printf("%d checks, %d failed\n", checks, failures);
  return checks == 0 || failures != 0;
}

#endif
