#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "kernels/candidate.h"
#include "kernels/search_space.h"
#include "tests/kernels/spaces.h"

namespace rooftune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

int64_t Rejected(const SearchSpace& space) {
  int64_t sum = 0;
  for (const auto& [name, count] : space.rejected()) sum += count;
  return sum;
}

TEST(SearchSpaceTest, PublishedSpacesComeOutExactly) {
  const auto convolution = SearchSpace::Create(ConvolutionSpace());
  ASSERT_TRUE(convolution.ok()) << convolution.status();
  EXPECT_EQ(convolution->total_points(), 10240);
  EXPECT_EQ(convolution->size(), 4362);
  EXPECT_EQ(Rejected(*convolution), 10240 - 4362);

  const auto dedispersion = SearchSpace::Create(DedispersionSpace());
  ASSERT_TRUE(dedispersion.ok()) << dedispersion.status();
  EXPECT_EQ(dedispersion->total_points(), 22272);
  EXPECT_EQ(dedispersion->size(), 11130);

  const auto gemm = SearchSpace::Create(GemmSpace());
  ASSERT_TRUE(gemm.ok()) << gemm.status();
  EXPECT_EQ(gemm->size(), 116928);
  EXPECT_EQ(Rejected(*gemm) + gemm->size(), gemm->total_points());
}

// What the space must be, the slow way: every point, every rule, no cuts.
struct Naive {
  std::vector<Config> valid;
  std::map<std::string, int64_t> rejected;
};

Naive Enumerate(const SearchSpaceSpec& spec, const SearchSpace& space) {
  Naive naive;
  std::vector<int> at(spec.params.size(), 0);
  while (true) {
    Config config;
    for (size_t i = 0; i < at.size(); ++i) config[spec.params[i].name()] = spec.params[i].value(at[i]);
    const auto holds = [&](const Names& names, const std::string& text, bool* exists) {
      const auto value = Expression::Parse(text)->Eval(names);
      *exists = value.ok();
      return value.ok() && *value != 0;
    };
    Names names = spec.fixed;
    names.insert(config.begin(), config.end());
    bool valid = true;
    for (const auto& let : spec.lets) {
      const auto value = Expression::Parse(let.expr())->Eval(names);
      if (!value.ok()) valid = false;
      names[let.name()] = value.ok() ? *value : 0;
    }
    for (const auto& constraint : spec.constraints) {
      bool exists;
      valid = valid && holds(names, constraint.expr(), &exists);
    }
    for (const auto& param : spec.params) {
      bool exists = true;
      const bool present = param.when().empty() || holds(names, param.when(), &exists);
      if (!exists || (!present && config[param.name()] != param.value(0))) valid = false;
    }
    const std::string why = space.WhyRejected(config);
    EXPECT_EQ(why.empty(), valid) << ConfigToString(config) << ": " << why;
    if (valid) {
      naive.valid.push_back(config);
    } else {
      ++naive.rejected[why];
    }
    size_t i = at.size();
    while (i-- > 0 && ++at[i] == spec.params[i].value_size()) at[i] = 0;
    if (i == static_cast<size_t>(-1)) return naive;
  }
}

void ExpectLikeNaive(const SearchSpaceSpec& spec) {
  const auto space = SearchSpace::Create(spec);
  ASSERT_TRUE(space.ok()) << space.status();
  const Naive naive = Enumerate(spec, *space);
  ASSERT_EQ(space->size(), static_cast<int64_t>(naive.valid.size()));
  for (int64_t i = 0; i < space->size(); ++i) {
    ASSERT_EQ(space->At(i), naive.valid[static_cast<size_t>(i)]);
    ASSERT_EQ(space->IndexOf(space->At(i)), i);
  }
  EXPECT_EQ(space->rejected(), naive.rejected);
}

TEST(SearchSpaceTest, IsTheSameAsByTryingEveryPoint) {
  ExpectLikeNaive(ConvolutionSpace());
  SearchSpaceSpec spec;
  AddParam(spec, "split", {1, 2, 4});
  AddParam(spec, "atomic", {0, 1}, "split > 1");
  AddParam(spec, "stages", {3, 0, 2, 5});
  AddParam(spec, "vec", {1, 2, 3}, "stages and n // stages > 2");
  spec.fixed = {{"n", 12}, {"limit", 9}};
  AddLet(spec, "rounds", "n // (stages - 2 + atomic)");  // none for some points
  AddLet(spec, "unused", "1 // (vec - 3)");              // neither, though nothing asks for it
  AddConstraint(spec, "rounds", "rounds * vec < limit or split == 4");
  AddConstraint(spec, "pair", "(split + vec) % 2");
  AddConstraint(spec, "fixed", "n > limit");
  ExpectLikeNaive(spec);
  AddConstraint(spec, "never", "n < limit");
  ExpectLikeNaive(spec);
}

TEST(SearchSpaceTest, RandomSpacesAreTheSameAsByTryingEveryPoint) {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 60; ++round) {
    SearchSpaceSpec spec;
    spec.fixed = {{"n", pick(40)}};
    std::vector<std::string> names = {"n"};
    const int params = 1 + pick(5);
    const auto name = [&] { return names[static_cast<size_t>(pick(static_cast<int>(names.size())))]; };
    for (int i = 0; i < params; ++i) {
      std::vector<int64_t> values = Range(pick(3), pick(3) + 3, 1);
      std::shuffle(values.begin(), values.end(), random);
      const std::string when = pick(4) == 0 ? absl::StrCat(name(), " > ", pick(4)) : "";
      AddParam(spec, absl::StrCat("p", i), values, when);
      names.push_back(absl::StrCat("p", i));
    }
    for (int i = pick(3); i-- > 0;) {
      const std::string let = absl::StrCat("let", spec.lets.size());
      AddLet(spec, let, absl::StrCat(name(), pick(2) ? " * " : " // ", name()));
      names.push_back(let);
    }
    for (int i = pick(5); i-- > 0;) {
      AddConstraint(spec, absl::StrCat("c", i),
                    absl::StrCat("(", name(), pick(2) ? " + " : " % ", name(), ") % ", 2 + pick(3), " != ", pick(2)));
    }
    ExpectLikeNaive(spec);
  }
}

TEST(SearchSpaceTest, ACutSubtreeCountsAllItsPoints) {
  SearchSpaceSpec spec;
  AddParam(spec, "a", {1, 2, 3});
  AddParam(spec, "b", Range(1, 10, 1));
  AddParam(spec, "c", Range(1, 7, 1));
  AddConstraint(spec, "a_small", "a < 3");
  AddConstraint(spec, "b_even", "b % 2 == 0");
  const auto space = SearchSpace::Create(spec);
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->size(), 2 * 5 * 7);
  EXPECT_THAT(space->rejected(), ElementsAre(Pair("a_small", 70), Pair("b_even", 70)));
}

TEST(SearchSpaceTest, CountsPointsBeyond64Bits) {
  SearchSpaceSpec spec;
  for (int i = 0; i < 40; ++i) AddParam(spec, absl::StrCat("p", i), {0, 1, 2, 3});
  AddConstraint(spec, "none", "p0 > 3");
  const auto space = SearchSpace::Create(spec);
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->total_points(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(space->size(), 0);
  EXPECT_THAT(space->rejected(), ElementsAre(Pair("none", std::numeric_limits<int64_t>::max())));
}

TEST(SearchSpaceTest, NoParametersIsOnePoint) {
  SearchSpaceSpec spec;
  spec.fixed = {{"n", 4}};
  AddConstraint(spec, "n", "n == 4");
  const auto space = SearchSpace::Create(spec);
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(space->size(), 1);
  EXPECT_THAT(space->At(0), IsEmpty());
  EXPECT_EQ(space->IndexOf({}), 0);
  spec.fixed["n"] = 5;
  const auto none = SearchSpace::Create(spec);
  EXPECT_EQ(none->size(), 0);
  EXPECT_EQ(none->IndexOf({}), -1);
  EXPECT_EQ(none->WhyRejected({}), "n");
}

TEST(SearchSpaceTest, SaysWhyAConfigurationIsNotAPoint) {
  const auto space = SearchSpace::Create(DedispersionSpace());
  Config config = space->At(0);
  EXPECT_EQ(space->WhyRejected(config), "");
  config["tile_stride_x"] = 1;
  EXPECT_EQ(space->WhyRejected(config), "stride_x");
  EXPECT_EQ(space->IndexOf(config), -1);
  config["tile_stride_x"] = 2;
  EXPECT_EQ(space->WhyRejected(config), "value 2 of tile_stride_x is not one of its values");
  EXPECT_EQ(space->IndexOf(config), -1);
  config.erase("tile_stride_x");
  EXPECT_EQ(space->WhyRejected(config), "missing parameter tile_stride_x");
  EXPECT_EQ(space->IndexOf(config), -1);
  config["warps"] = 1;
  EXPECT_EQ(*SearchSpace::WhyRejected(DedispersionSpace(), config), "unknown parameter warps");
  EXPECT_EQ(*SearchSpace::WhyRejected(DedispersionSpace(), space->At(0)), "");
  EXPECT_EQ(space->WhyRejected(config), "unknown parameter warps");
  EXPECT_EQ(space->IndexOf(config), -1);
}

TEST(SearchSpaceTest, RefusesWhatIsWrong) {
  const auto error = [](const std::function<void(SearchSpaceSpec&)>& change) {
    SearchSpaceSpec spec;
    AddParam(spec, "a", {1, 2});
    AddParam(spec, "b", {1, 2});
    spec.fixed = {{"n", 4}};
    change(spec);
    const auto space = SearchSpace::Create(spec);
    EXPECT_EQ(space.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(space.status().message());
  };
  EXPECT_EQ(error([](auto& s) { AddConstraint(s, "c", "a +"); }), "c: column 4: expected a value, found the end");
  EXPECT_EQ(error([](auto& s) { AddConstraint(s, "c", "a + x"); }), "c: a + x: unknown name 'x'");
  EXPECT_EQ(error([](auto& s) { AddLet(s, "a", "1"); }), "'a' is defined twice");
  EXPECT_EQ(error([](auto& s) { AddParam(s, "n", {1}); }), "'n' is defined twice");
  EXPECT_EQ(error([](auto& s) { AddParam(s, "p", {}); }), "parameter 'p' has no values");
  EXPECT_EQ(error([](auto& s) { AddParam(s, "p", {1, 1}); }), "parameter 'p' has a value twice");
  EXPECT_EQ(error([](auto& s) { AddParam(s, "p", Range(0, 256, 1)); }), "parameter 'p' has more than 256 values");
  EXPECT_EQ(error([](auto& s) {
              AddLet(s, "x", "y");
              AddLet(s, "y", "a");
            }),
            "let x: 'y' is used before it is defined");
  EXPECT_EQ(error([](auto& s) { AddLet(s, "x", "x + 1"); }), "let x: 'x' is used before it is defined");
  EXPECT_EQ(error([](auto& s) {
              AddParam(s, "p", {1, 2}, "p > 1");
            }),
            "when p: uses a parameter that does not come before it");
  EXPECT_THAT(error([](auto& s) {
                for (int i = 0; i < 64; ++i) AddParam(s, absl::StrCat("p", i), {1});
              }),
              HasSubstr("more than 64 parameters"));
}

TEST(SearchSpaceTest, TooManyValidPointsAreRefused) {
  SearchSpaceSpec spec;
  AddParam(spec, "a", Range(1, 100, 1));
  AddParam(spec, "b", Range(1, 100, 1));
  const auto space = SearchSpace::Create(spec, 9999);
  EXPECT_EQ(space.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(space.status()), "SPACE_TOO_LARGE");
  EXPECT_TRUE(SearchSpace::Create(spec, 10000).ok());
}

TEST(CandidateTest, ConfigTextIsSorted) {
  EXPECT_EQ(ConfigToString({{"stages", 3}, {"block_m", 128}}), "block_m=128,stages=3");
  EXPECT_EQ(ConfigToString({}), "");
}

TEST(CandidateTest, CompileKeyDependsOnEveryInput) {
  worker::v1::CompileRequest request;
  request.mutable_source()->set_name("t/kernel.cuh");
  request.mutable_source()->set_text("x");
  auto* header = request.add_header();
  header->set_name("common/types.cuh");
  header->set_text("y");
  request.add_define("RT_A=1");
  request.set_arch("sm_90");
  request.set_option_list_version(1);
  const std::string key = CompileKey(request, "13.0");
  EXPECT_EQ(key.size(), 32u);
  EXPECT_EQ(key, CompileKey(request, "13.0"));
  EXPECT_NE(key, CompileKey(request, "13.1"));
  const auto changed = [&](const std::function<void(worker::v1::CompileRequest&)>& change) {
    worker::v1::CompileRequest other = request;
    change(other);
    return CompileKey(other, "13.0");
  };
  EXPECT_NE(key, changed([](auto& r) { r.mutable_source()->set_text("z"); }));
  EXPECT_NE(key, changed([](auto& r) { r.mutable_header(0)->set_text("z"); }));
  EXPECT_NE(key, changed([](auto& r) { r.mutable_header(0)->set_name("z"); }));
  EXPECT_NE(key, changed([](auto& r) { r.set_define(0, "RT_A=2"); }));
  EXPECT_NE(key, changed([](auto& r) { r.add_define("RT_B=1"); }));
  EXPECT_NE(key, changed([](auto& r) { r.set_arch("sm_90a"); }));
  EXPECT_NE(key, changed([](auto& r) { r.set_option_list_version(2); }));
  // How long it may take does not change what comes out.
  EXPECT_EQ(key, changed([](auto& r) { r.set_timeout_ms(5); }));
}

TEST(CandidateTest, EnvironmentKeyLeavesPatchLevelsOut) {
  v1::Environment environment;
  environment.set_nvrtc("13.0.88");
  environment.set_driver("580.159.04");
  EXPECT_EQ(EnvironmentKey(environment), "nvrtc 13.0/driver 580");
  environment.set_driver("");
  EXPECT_EQ(EnvironmentKey(environment), "nvrtc 13.0");
}

TEST(CandidateTest, TargetKeySeparatesOperatorAndDevice) {
  EXPECT_NE(TargetKey("gemm m=1", "d"), TargetKey("gemm m=1d", ""));
}

}  // namespace
}  // namespace rooftune
