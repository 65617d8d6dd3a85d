// Mends one intrinsic while llama.cpp is compiled with g++ 12; included ahead of every file (-include).
//
// _tile_loadconfig of g++ 12 tells the compiler that LDTILECFG reads 8 bytes. It reads 64, so the optimizer drops the
// stores of the tile shapes, tiles of no rows are configured, and the first TILELOADD dies of SIGILL. With the whole
// operand named, AMX works. Plain C and C++; nothing happens where AMX is not compiled.
#ifndef POCKETLM_BENCH_PEERS_AMX_TILE_CONFIG_H_
#define POCKETLM_BENCH_PEERS_AMX_TILE_CONFIG_H_

#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

struct pocketlm_peer_tile_config {
  char bytes[64];
};
#define _tile_loadconfig(config) \
  __asm__ volatile("ldtilecfg %0" : : "m"(*(const struct pocketlm_peer_tile_config*)(config)))
#endif

#endif  // POCKETLM_BENCH_PEERS_AMX_TILE_CONFIG_H_
