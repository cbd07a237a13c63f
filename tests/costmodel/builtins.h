// The built-in operators and devices, for tests.
#ifndef ROOFTUNE_TESTS_COSTMODEL_BUILTINS_H_
#define ROOFTUNE_TESTS_COSTMODEL_BUILTINS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "costmodel/device_profile.h"
#include "costmodel/op.h"

namespace rooftune {

inline const OpCatalog& Catalog() {
  static const OpCatalog* const catalog = new OpCatalog(*OpCatalog::Builtin());
  return *catalog;
}

inline Op MustParse(const std::string& text) {
  const auto op = Catalog().Parse(text);
  EXPECT_TRUE(op.ok()) << text << ": " << op.status();
  return op.ok() ? *op : Op();
}

inline std::vector<OpTensorInstance> TensorsOf(const std::string& text) {
  const Op op = MustParse(text);
  const auto tensors = Catalog().Find(op.kind)->Tensors(op);
  EXPECT_TRUE(tensors.ok()) << text << ": " << tensors.status();
  return tensors.ok() ? *tensors : std::vector<OpTensorInstance>();
}

inline Work WorkOf(const std::string& text) {
  const Op op = MustParse(text);
  const auto work = Catalog().Find(op.kind)->ComputeWork(op);
  EXPECT_TRUE(work.ok()) << text << ": " << work.status();
  return work.ok() ? *work : Work();
}

// Operations on one pipe.
inline Int128 OpsOn(const Work& work, const std::string& pipe) {
  Int128 ops = 0;
  for (const PipeOps& p : work.pipe_ops) {
    if (p.pipe == pipe) ops += p.ops;
  }
  return ops;
}

inline DeviceProfile Profile(const std::string& id) {
  static const ProfileCatalog* const catalog = new ProfileCatalog(*ProfileCatalog::Builtin());
  const auto profile = catalog->ById(id);
  EXPECT_TRUE(profile.ok()) << profile.status();
  return profile.ok() ? *profile : DeviceProfile();
}

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_COSTMODEL_BUILTINS_H_
