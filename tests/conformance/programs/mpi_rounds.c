// SPDX-License-Identifier: MIT
// What MPI programs do, with every byte that arrives compared: each rank says hello, messages of
// growing size go around a ring, all ranks exchange with all others, and ranks write into each
// other's windows. Prints "all right" on rank 0 and ends with 0, or says what was wrong and aborts.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLargest = 1 << 20, kRounds = 20 };

static int rank, ranks;

static unsigned char pattern(int from, int round, int at) {
  return (unsigned char)(from * 31 + round * 7 + at + at / 251);
}

static void fill(unsigned char* buffer, int bytes, int round) {
  for (int i = 0; i < bytes; ++i) buffer[i] = pattern(rank, round, i);
}

static void compare(const unsigned char* buffer, int bytes, int from, int round,
                    const char* where) {
  for (int i = 0; i < bytes; ++i) {
    if (buffer[i] == pattern(from, round, i)) continue;
    fprintf(stderr, "rank %d, %s, round %d: byte %d of %d from rank %d is wrong\n", rank, where,
            round, i, bytes, from);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static void hello(void) {
  int present = 1, total = 0;
  printf("hello from rank %d of %d\n", rank, ranks);
  fflush(stdout);
  MPI_Allreduce(&present, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (total != ranks) MPI_Abort(MPI_COMM_WORLD, 1);
}

// From the smallest message, which goes at once, to those for which both sides have to agree.
static void ring(unsigned char* out, unsigned char* in) {
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  for (int bytes = 1; bytes <= kLargest; bytes *= 16) {
    for (int round = 0; round < kRounds; ++round) {
      fill(out, bytes, round);
      MPI_Sendrecv(out, bytes, MPI_BYTE, next, round, in, bytes, MPI_BYTE, previous, round,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      compare(in, bytes, previous, round, "ring");
    }
  }
}

static void all_to_all(unsigned char* out, unsigned char* in) {
  for (int bytes = 8; bytes <= 65536; bytes *= 32) {
    for (int round = 0; round < kRounds; ++round) {
      for (int to = 0; to < ranks; ++to) fill(out + to * bytes, bytes, round + to);
      MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
      for (int from = 0; from < ranks; ++from) {
        compare(in + from * bytes, bytes, from, round + rank, "all-to-all");
      }
    }
  }
}

// Each rank puts into its place of every window, adds to a counter there, and reads all back.
static void windows(unsigned char* out, unsigned char* in) {
  enum { kPlace = 4096 };
  unsigned char* memory;
  MPI_Win window;
  const int counter_at = ranks * kPlace;
  MPI_Win_allocate(counter_at + (int)sizeof(long), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                   &window);
  *(long*)(void*)(memory + counter_at) = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  const long one = 1;
  fill(out, kPlace, 5);
  MPI_Win_lock_all(0, window);
  for (int to = 0; to < ranks; ++to) {
    MPI_Put(out, kPlace, MPI_BYTE, to, rank * kPlace, kPlace, MPI_BYTE, window);
    for (int i = 0; i < kRounds; ++i) {
      MPI_Accumulate(&one, 1, MPI_LONG, to, counter_at, 1, MPI_LONG, MPI_SUM, window);
    }
  }
  MPI_Win_flush_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  const int other = (rank + 1) % ranks;
  long count = 0;
  MPI_Get(in, counter_at, MPI_BYTE, other, 0, counter_at, MPI_BYTE, window);
  MPI_Get(&count, 1, MPI_LONG, other, counter_at, 1, MPI_LONG, window);
  MPI_Win_unlock_all(window);
  for (int from = 0; from < ranks; ++from) compare(in + from * kPlace, kPlace, from, 5, "window");
  if (count != (long)ranks * kRounds) {
    fprintf(stderr, "rank %d: the counter of rank %d is %ld\n", rank, other, count);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Win_free(&window);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  unsigned char* out = malloc(kLargest);
  unsigned char* in = malloc(kLargest);
  if (out == NULL || in == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  hello();
  ring(out, in);
  all_to_all(out, in);
  windows(out, in);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("all right\n");
  free(out);
  free(in);
  MPI_Finalize();
  return 0;
}
