// What every Store must do: instantiate StoreConformanceTest with the factories of a backend.
#ifndef ROOFTUNE_TESTS_TUNER_STORE_STORE_CONFORMANCE_H_
#define ROOFTUNE_TESTS_TUNER_STORE_STORE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "tests/tuner/store/store_test_util.h"
#include "tuner/store/store.h"

namespace rooftune {

struct StoreFactory {
  std::string name;
  // A new, empty store; a file may lie in `dir`.
  std::function<std::unique_ptr<Store>(const TempDir& dir)> make;
};

class StoreConformanceTest : public ::testing::TestWithParam<StoreFactory> {
 protected:
  void SetUp() override {
    store_ = GetParam().make(dir_);
    ASSERT_NE(store_, nullptr);
  }

  TempDir dir_;
  std::unique_ptr<Store> store_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_TUNER_STORE_STORE_CONFORMANCE_H_
