// How the blocks of a GEMM template share d and k. Reads RT_BM RT_BN RT_BK RT_SPLIT_K RT_RASTER.
#pragma once

struct TilePosition {
  int m, n;
};

// Tile number `id` of tiles_m × tiles_n: RT_RASTER rows of tiles are walked down before the next column, so that
// blocks that run together share operands in L2.
__device__ __forceinline__ TilePosition raster(int id, int tiles_m, int tiles_n) {
  const int group = id / (RT_RASTER * tiles_n);
  const int first = group * RT_RASTER;
  const int rows = min(tiles_m - first, RT_RASTER);
  const int within = id - group * RT_RASTER * tiles_n;
  return {first + within % rows, within / rows};
}

// The same to the tile's corner.
__device__ __forceinline__ TilePosition tile_position(int id, int m, int n) {
  const TilePosition tile = raster(id, (m + RT_BM - 1) / RT_BM, (n + RT_BN - 1) / RT_BN);
  return {tile.m * RT_BM, tile.n * RT_BN};
}

struct KRange {
  int first_tile, tiles;
};

// Shares differ by at most one k-tile, and none is empty while RT_SPLIT_K is at most the number of k-tiles.
__device__ __forceinline__ KRange k_range(int k, int share) {
  const long long k_tiles = (k + RT_BK - 1) / RT_BK;
  const int first = static_cast<int>(k_tiles * share / RT_SPLIT_K);
  return {first, static_cast<int>(k_tiles * (share + 1) / RT_SPLIT_K) - first};
}
