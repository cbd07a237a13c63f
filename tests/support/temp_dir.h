// A folder for one test.
#ifndef ROOFTUNE_TESTS_SUPPORT_TEMP_DIR_H_
#define ROOFTUNE_TESTS_SUPPORT_TEMP_DIR_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace rooftune {

// New and empty, so that tests may go side by side; removed with all it holds.
class TempDir {
 public:
  TempDir() : path_((std::filesystem::temp_directory_path() / "rooftune_test_XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  // The path of a file that holds `text`.
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name, std::ios::binary) << text;
    return *this / name;
  }

 private:
  std::string path_;
};

}  // namespace rooftune

#endif  // ROOFTUNE_TESTS_SUPPORT_TEMP_DIR_H_
