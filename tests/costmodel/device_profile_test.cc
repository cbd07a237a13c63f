#include "costmodel/device_profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/file_util.h"
#include "costmodel/occupancy.h"
#include "tests/support/temp_dir.h"

namespace rooftune {
namespace {

const ProfileCatalog& Catalog() {
  static const ProfileCatalog* const catalog = [] {
    auto built = ProfileCatalog::Builtin();
    EXPECT_TRUE(built.ok()) << built.status();
    return new ProfileCatalog(built.ok() ? *std::move(built) : ProfileCatalog());
  }();
  return *catalog;
}

DeviceProfile Get(const std::string& id) {
  const auto profile = Catalog().ById(id);
  EXPECT_TRUE(profile.ok()) << profile.status();
  return profile.ok() ? *profile : DeviceProfile();
}

double Peak(const DeviceProfile& profile, const std::string& pipe, v1::DType dtype) {
  for (const auto& peak : profile.peak()) {
    if (peak.pipe() == pipe && peak.dtype() == dtype) return peak.tera_ops().value();
  }
  return 0;
}

TEST(ProfileTest, EveryEmbeddedProfileIsValid) {
  EXPECT_GE(Catalog().all().size(), 28u);
  for (const auto& [id, profile] : Catalog().all()) {
    EXPECT_EQ(id, profile.id());
    EXPECT_TRUE(ValidateProfile(profile).ok()) << ValidateProfile(profile);
    EXPECT_GT(Peak(profile, "fp32", v1::FP32), 0) << id;
    EXPECT_GT(Peak(profile, "tensor", v1::FP16), 0) << id;
    EXPECT_GT(profile.sfu_per_clk_sm(), 0) << id;
    EXPECT_GT(profile.l2_bytes(), 0) << id;
  }
}

// Dense tensor rates are SMs × FMA per clock and SM × 2 × clock; a sparse figure would be twice that.
TEST(ProfileTest, PeaksAreDense) {
  // fp16 with fp32 accumulation, FMA per clock and SM; GeForce parts and the A10G run at half their chip's rate.
  const std::map<int, double> rate = {{70, 512},  {75, 512},   {80, 1024},  {86, 512},  {89, 512},
                                      {90, 2048}, {100, 4096}, {103, 4096}, {120, 512}, {121, 512}};
  const std::map<int, double> fp32_rate = {{70, 64}, {75, 64}, {80, 64}};
  for (const auto& [id, p] : Catalog().all()) {
    const bool half = id.rfind("rtx-3090", 0) == 0 || id == "rtx-4090" || id == "rtx-5090" || id == "a10g";
    const double expected = p.sm_count() * rate.at(p.cc()) * (half ? 0.5 : 1.0) * 2 * p.peak_clock_mhz() / 1e6;
    EXPECT_NEAR(Peak(p, "tensor", v1::FP16) / expected, 1.0, 0.04) << id;
    if (p.cc() >= 80) {
      EXPECT_EQ(Peak(p, "tensor", v1::BF16), Peak(p, "tensor", v1::FP16)) << id;
    }
    const double fp32 =
        p.sm_count() * (fp32_rate.count(p.cc()) ? fp32_rate.at(p.cc()) : 128.0) * 2 * p.peak_clock_mhz() / 1e6;
    EXPECT_NEAR(Peak(p, "fp32", v1::FP32) / fp32, 1.0, 0.04) << id;
    EXPECT_EQ(Peak(p, "tensor", v1::FP8_E4M3), Peak(p, "tensor", v1::FP8_E5M2)) << id;
  }
}

TEST(ProfileTest, HopperCardsAreFourDifferentRows) {
  const DeviceProfile sxm = Get("h100-sxm"), pcie = Get("h100-pcie"), nvl = Get("h100-nvl"), h200 = Get("h200-sxm");
  EXPECT_EQ(h200.name(), "NVIDIA H200");
  EXPECT_EQ(sxm.name(), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(pcie.name(), "NVIDIA H100 PCIe");
  EXPECT_EQ(nvl.name(), "NVIDIA H100 NVL");
  EXPECT_GT(Peak(sxm, "tensor", v1::BF16), Peak(nvl, "tensor", v1::BF16));
  EXPECT_GT(Peak(nvl, "tensor", v1::BF16), Peak(pcie, "tensor", v1::BF16));
  EXPECT_EQ(Peak(sxm, "tensor", v1::BF16), Peak(h200, "tensor", v1::BF16));
  EXPECT_GT(h200.memory_gbps().value(), sxm.memory_gbps().value());
  EXPECT_EQ(pcie.sm_count(), 114);
  EXPECT_FALSE(h200.memory_gbps().source().empty());
  EXPECT_TRUE(nvl.memory_gbps().value() > 0 && nvl.peak(0).tera_ops().unsure());
}

TEST(ProfileTest, NamesMatchExactly) {
  EXPECT_EQ(Catalog().ByName("NVIDIA H200", 0)->id(), "h200-sxm");
  EXPECT_EQ(Catalog().ByName("NVIDIA H200 NVL", 0)->id(), "h200-nvl");
  EXPECT_EQ(Catalog().ByName("NVIDIA H20", 0).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Catalog().ByName("nvidia h200", 0).status().code(), absl::StatusCode::kNotFound);
  const absl::Status unknown = Catalog().ById("h200-smx").status();
  EXPECT_EQ(ErrorReason(unknown), "UNKNOWN_DEVICE");
  EXPECT_EQ(ErrorMetadata(unknown)["nearest"], "h200-sxm");
}

TEST(ProfileTest, FieldsAreChecked) {
  const auto field = [](auto change) {
    DeviceProfile p = Get("h200-sxm");
    change(p);
    return ErrorMetadata(ValidateProfile(p))["field"];
  };
  EXPECT_EQ(field([](DeviceProfile&) {}), "");
  EXPECT_EQ(field([](DeviceProfile& p) { p.set_id("H200"); }), "id");
  EXPECT_EQ(field([](DeviceProfile& p) { p.clear_sm_count(); }), "sm_count");
  EXPECT_EQ(field([](DeviceProfile& p) { p.mutable_memory_gbps()->set_value(4.8e12); }), "memory_gbps");
  EXPECT_EQ(field([](DeviceProfile& p) { p.mutable_memory_gbps()->set_value(std::nan("")); }), "memory_gbps");
  EXPECT_EQ(field([](DeviceProfile& p) { p.mutable_peak(0)->set_pipe("simd"); }), "peak simd FP16");
  EXPECT_EQ(field([](DeviceProfile& p) { p.mutable_peak(0)->mutable_tera_ops()->set_value(9.89e14); }),
            "peak tensor FP16");
  EXPECT_EQ(field([](DeviceProfile& p) { *p.add_peak() = p.peak(0); }), "peak tensor FP16");
  EXPECT_EQ(field([](DeviceProfile& p) { p.set_shared_per_block_optin_bytes(1 << 29); }),
            "shared_per_block_optin_bytes");
}

TEST(ProfileTest, UserFoldersAddAndReplace) {
  const TempDir temp;
  const std::string& dir = temp.path();
  DeviceProfile own = Get("h200-sxm");
  own.set_sm_count(100);
  ASSERT_TRUE(WriteFileAtomic(dir + "/own.txtpb", own.DebugString()).ok());
  ProfileCatalog catalog = *ProfileCatalog::Builtin();
  ASSERT_TRUE(catalog.AddDir(dir).ok());
  EXPECT_EQ(catalog.ById("h200-sxm")->sm_count(), 100);
  ASSERT_TRUE(WriteFileAtomic(dir + "/bad.txtpb", "id: \"x\"\nsms: 3\n").ok());
  const absl::Status bad = catalog.AddDir(dir);
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(bad.message()).find("bad.txtpb:2:"), std::string::npos) << bad;
  EXPECT_FALSE(catalog.AddDir(dir + "/missing").ok());
}

worker::v1::DeviceInfo H200Info() {
  worker::v1::DeviceInfo info;
  info.set_name("NVIDIA H200");
  info.set_cc(90);
  info.set_sm_count(132);
  info.set_memory_bytes(150109880320);
  info.set_l2_bytes(62914560);
  info.set_max_clock_mhz(1980);
  info.set_memory_clock_mhz(3201);
  info.set_memory_bus_bits(6016);
  info.set_shared_per_block_optin_bytes(232448);
  info.set_shared_per_sm_bytes(233472);
  info.set_registers_per_sm(65536);
  info.set_threads_per_sm(2048);
  info.set_power_limit_watts(700);
  return info;
}

TEST(DeviceTest, KeysNameWhatChangesTheAnswer) {
  worker::v1::DeviceInfo info = H200Info();
  EXPECT_EQ(DeviceKey(info), "nvidia-h200/132sm/141gb/700w");
  info.set_memory_bytes(int64_t{143771} << 20);  // what nvidia-smi reports
  EXPECT_EQ(DeviceKey(info), "nvidia-h200/132sm/141gb/700w");
  info.set_driver("590.1");
  EXPECT_EQ(DeviceKey(info), "nvidia-h200/132sm/141gb/700w");
  info.set_power_limit_watts(600);
  EXPECT_EQ(DeviceKey(info), "nvidia-h200/132sm/141gb/600w");
  info.set_mig_profile("1g.18gb");
  info.set_memory_bytes(int64_t{18} << 30);
  info.set_sm_count(16);
  EXPECT_EQ(DeviceKey(info), "nvidia-h200/16sm/18gb/600w/mig-1g.18gb");
  info.Clear();
  info.set_name("NVIDIA  Future/GPU (X)");
  info.set_memory_bytes(int64_t{24} << 30);
  EXPECT_EQ(DeviceKey(info), "nvidia-future-gpu-x/0sm/24gb/0w");
  EXPECT_EQ(ModelDeviceKey(Get("b200")), "model/b200");
  EXPECT_EQ(ArchName(90, false), "sm_90");
  EXPECT_EQ(ArchName(100, true), "sm_100a");
}

TEST(DeviceTest, DriverValuesLieOverTheTable) {
  const DeviceProfile p = ProfileOfDevice(H200Info(), Catalog());
  EXPECT_EQ(p.id(), "h200-sxm");
  EXPECT_EQ(p.memory_bytes(), 150109880320);
  EXPECT_NEAR(p.memory_gbps().value(), 4814.3, 0.1);
  EXPECT_EQ(Peak(p, "tensor", v1::BF16), 989.4);
  EXPECT_TRUE(ValidateProfile(p).ok()) << ValidateProfile(p);
  worker::v1::DeviceInfo slice = H200Info();
  slice.set_sm_count(66);
  EXPECT_NEAR(Peak(ProfileOfDevice(slice, Catalog()), "tensor", v1::BF16), 494.7, 0.01);
  // A memory clock that makes no sense does not move a known card's bandwidth.
  worker::v1::DeviceInfo odd = H200Info();
  odd.set_memory_clock_mhz(405);
  EXPECT_EQ(ProfileOfDevice(odd, Catalog()).memory_gbps().value(), 4814);
}

TEST(DeviceTest, UnknownDevicesHaveLimitsButNoPeaks) {
  worker::v1::DeviceInfo info = H200Info();
  info.set_name("NVIDIA H999");
  const DeviceProfile p = ProfileOfDevice(info, Catalog());
  EXPECT_EQ(p.peak_size(), 0);
  EXPECT_NEAR(p.memory_gbps().value(), 4814.3, 0.1);
  EXPECT_EQ(p.blocks_per_sm_max(), 32);
  EXPECT_TRUE(ValidateProfile(p).ok()) << ValidateProfile(p);
  const Names names = DeviceNames(p);
  EXPECT_EQ(names.at("cc"), 90);
  EXPECT_EQ(names.at("sm_count"), 132);
  EXPECT_EQ(names.at("shared_max"), 232448);
  EXPECT_EQ(names.at("threads_max"), 1024);
}

// Values of CUDA's occupancy calculator (cuda_occupancy.h of CUDA 13.0).
TEST(OccupancyTest, EqualsCudaCalculator) {
  const struct {
    const char* device;
    int threads, registers;
    int64_t shared;
    int blocks;
    const char* limiter;
  } cases[] = {
      {"h200-sxm", 256, 123, 0, 2, "registers"},
      {"h200-sxm", 256, 123, 60 << 10, 2, "registers"},
      {"h200-sxm", 256, 123, 114 << 10, 1, "shared"},
      {"h200-sxm", 256, 32, 0, 8, "threads"},
      {"h200-sxm", 32, 16, 0, 32, "blocks"},
      {"h200-sxm", 128, 255, 0, 2, "registers"},
      {"h200-sxm", 1024, 65, 0, 0, "registers"},
      {"h200-sxm", 1024, 64, 0, 1, "registers"},
      // 5 warps take the registers of 8 in the check of a launch, but only 5 in the file.
      {"h200-sxm", 160, 128, 0, 3, "registers"},
      {"h200-sxm", 64, 32, 227 << 10, 1, "shared"},
      {"l4", 256, 32, 0, 6, "threads"},
      {"l4", 128, 32, 20 << 10, 4, "shared"},
      {"t4", 128, 32, 16 << 10, 4, "shared"},
  };
  for (const auto& c : cases) {
    const Occupancy o = ComputeOccupancy(c.threads, c.registers, c.shared, Get(c.device));
    EXPECT_EQ(o.blocks_per_sm, c.blocks) << c.device << " " << c.threads << " " << c.registers << " " << c.shared;
    EXPECT_EQ(o.limiter, c.limiter) << c.device << " " << c.threads << " " << c.registers << " " << c.shared;
  }
}

TEST(OccupancyTest, SaysWhyABlockCannotRun) {
  const DeviceProfile p = Get("h200-sxm");
  EXPECT_EQ(ComputeOccupancy(1025, 32, 0, p).limiter, "more threads than a block may have");
  EXPECT_EQ(ComputeOccupancy(128, 256, 0, p).limiter, "more registers than a thread may have");
  EXPECT_EQ(ComputeOccupancy(128, 32, 232449, p).limiter, "more shared memory than a block may have");
  EXPECT_EQ(ComputeOccupancy(128, 32, 232448, p).blocks_per_sm, 1);
  EXPECT_EQ(ComputeOccupancy(0, 32, 0, p).blocks_per_sm, 0);
}

}  // namespace
}  // namespace rooftune
