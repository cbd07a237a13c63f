// Tensor maps on their way from a plan to a launch.
#include "tuner/worker/run_tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/tuner/worker/run_fake_cuda.h"
#include "tuner/worker/run_launch.h"
#include "tuner/worker/run_outcome.h"

namespace rooftune {
namespace {

using ::testing::HasSubstr;

// As of a bf16 matrix of 40 × 10 in 3 batches.
v1::TensorMap Map() {
  v1::TensorMap map;
  map.set_tensor("a");
  map.set_dtype(v1::BF16);
  for (const int64_t extent : {40, 10, 3}) map.add_dim()->set_value(extent);
  for (const int64_t stride : {80, 800}) map.add_stride_bytes()->set_value(stride);
  for (const int64_t extent : {64, 32, 1}) map.add_box()->set_value(extent);
  for (int i = 0; i < 3; ++i) map.add_element_stride()->set_value(1);
  map.set_swizzle(3);
  map.set_l2_promotion(2);
  return map;
}

FakeCuda::EncodedMap Decode(const void* bytes) {
  FakeCuda::EncodedMap map;
  std::memcpy(&map, bytes, sizeof(map));
  return map;
}

TEST(TensorMapTest, TheDriverGetsWhatThePlanSays) {
  FakeCuda cuda;
  const auto encoded = EncodeTensorMap(*cuda.driver(), Map(), 0x1000);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  const FakeCuda::EncodedMap map = Decode(encoded->bytes);
  EXPECT_EQ(map.address, 0x1000u);
  EXPECT_EQ(map.type, 9);  // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
  EXPECT_EQ(map.rank, 3);
  EXPECT_EQ(map.dims[0] * 10000 + map.dims[1] * 100 + map.dims[2], 401003u);
  EXPECT_EQ(map.strides[0] * 1000 + map.strides[1], 80800u);
  EXPECT_EQ(map.box[0] * 10000 + map.box[1] * 100 + map.box[2], 643201);
  EXPECT_EQ(map.element_strides[2], 1);
  EXPECT_EQ(map.swizzle, 3);
  EXPECT_EQ(map.l2_promotion, 2);
  EXPECT_EQ(map.interleave + map.oob_fill, 0);
}

// Numbers of cuda.h's CUtensorMapDataType.
TEST(TensorMapTest, Types) {
  FakeCuda cuda;
  const std::pair<v1::DType, int> types[] = {{v1::FP32, 7},     {v1::FP16, 6},     {v1::FP64, 8}, {v1::INT32, 3},
                                             {v1::FP8_E4M3, 0}, {v1::FP8_E5M2, 0}, {v1::INT8, 0}};
  for (const auto& [dtype, number] : types) {
    v1::TensorMap map = Map();
    map.set_dtype(dtype);
    const auto encoded = EncodeTensorMap(*cuda.driver(), map, 0x1000);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    EXPECT_EQ(Decode(encoded->bytes).type, number) << v1::DType_Name(dtype);
  }
}

TEST(TensorMapTest, WhatCannotBeEncodedIsTheCandidatesFailureWithText) {
  FakeCuda cuda;
  const auto driver = cuda.driver();
  const auto error = [&](const std::function<void(v1::TensorMap&)>& change) {
    v1::TensorMap map = Map();
    change(map);
    const absl::Status status = EncodeTensorMap(*driver, map, 0x1000).status();
    EXPECT_EQ(OutcomeOfStatus(status), v1::LAUNCH_FAILED) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error([](auto& m) { m.mutable_box(1)->set_value(257); }),
              HasSubstr("tensor map of 'a' (dims 40 x 10 x 3, strides 80 x 800 bytes, box 64 x 257 x 1, swizzle 3)"));
  EXPECT_THAT(error([](auto& m) { m.mutable_dim(1)->set_value(-1); }), HasSubstr("a tensor map with -1"));
  EXPECT_THAT(error([](auto& m) { m.mutable_box(0)->set_value(int64_t{1} << 32); }), HasSubstr("with 4294967296"));
  EXPECT_THAT(error([](auto& m) { m.mutable_stride_bytes()->RemoveLast(); }), HasSubstr("3 dims, 1 strides"));
  EXPECT_THAT(error([](auto& m) { m.set_dtype(v1::DTYPE_UNSPECIFIED); }), HasSubstr("type 0"));
  EXPECT_THAT(error([](auto& m) { m.clear_dim(); }), HasSubstr("has 0 dims"));
  EXPECT_FALSE(EncodeTensorMap(*driver, Map(), 0x1008).ok());
  cuda.has_tensor_maps = false;
  const absl::Status old = EncodeTensorMap(*cuda.driver(), Map(), 0x1000).status();
  EXPECT_EQ(OutcomeOfStatus(old), v1::LAUNCH_FAILED);
  EXPECT_THAT(std::string(old.message()), HasSubstr("CUDA 12.0"));
}

TEST(TensorMapTest, IsAnArgumentLikeOthers) {
  FakeCuda cuda;
  v1::Launch launch;
  launch.set_symbol("k");
  launch.add_argument()->set_tensor("a");
  *launch.add_argument()->mutable_tensor_map() = Map();
  v1::Argument* const count = launch.add_argument();
  count->mutable_integer()->set_value(7);
  count->set_size(4);
  Bindings bindings;
  bindings.tensor["a"] = 0x2000;
  auto pack = BindArguments(*cuda.driver(), launch, bindings);
  ASSERT_TRUE(pack.ok()) << pack.status();
  const std::vector<void*> pointers = pack->Pointers();
  ASSERT_EQ(pointers.size(), 3u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pointers[1]) % 64, 0u);
  EXPECT_EQ(Decode(pointers[1]).address, 0x2000u);
  EXPECT_EQ(*static_cast<int32_t*>(pointers[2]), 7);
  launch.mutable_argument(1)->mutable_tensor_map()->set_tensor("b");
  const absl::Status missing = BindArguments(*cuda.driver(), launch, bindings).status();
  EXPECT_THAT(std::string(missing.message()), HasSubstr("kernel 'k': no tensor 'b'"));
}

}  // namespace
}  // namespace rooftune
