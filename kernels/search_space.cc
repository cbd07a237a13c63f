#include "kernels/search_space.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace rooftune {
namespace {

constexpr int kMaxParams = 64;
constexpr int kMaxValues = 256;
// Memory for remembered results of checks: entries of one check, and of all together.
constexpr int64_t kMaxMemo = int64_t{1} << 20;
constexpr int64_t kMaxMemoTotal = int64_t{1} << 24;

constexpr char kArithmetic[] = "arithmetic";

// Products of counts saturate: spaces may be larger than anything that can be walked.
int64_t SaturatingMul(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}
int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

absl::Status Invalid(absl::string_view what) { return Error(absl::StatusCode::kInvalidArgument, "BAD_SPACE", what); }

enum class Verdict : uint8_t { kUnknown, kHolds, kBroken, kNoValue };

}  // namespace

// Everything but the points. Slots of expressions: parameters, lets, fixed names.
struct SearchSpace::Compiled {
  // Something evaluated once its last parameter has a value.
  struct Rule {
    std::string name;
    BoundExpression expression;
    // Lets it needs, itself excluded, in order.
    std::vector<int> lets;
    // Parameters it depends on, also through lets, ascending.
    std::vector<int> params;
    // A let only has to exist; a constraint has to hold.
    bool is_let = false;

    int level() const { return params.empty() ? -1 : params.back(); }
  };

  std::vector<std::string> params;
  std::vector<std::vector<int64_t>> values;
  std::vector<std::string> slots;
  size_t let_count = 0;
  std::vector<int64_t> fixed;  // of all slots; 0 where not fixed
  std::vector<Rule> lets;
  // Of each parameter; without expression where it always exists (has_when).
  std::vector<Rule> whens;
  std::vector<bool> has_when;
  // Lets and constraints by level + 1, in declared order, lets first.
  std::vector<std::vector<Rule>> checks;

  absl::StatusOr<Rule> MakeRule(const std::string& name, const std::string& text, size_t visible_lets) const;
  absl::Status AddParam(const manifest::v1::Param& param);
  absl::Status Build(const SearchSpaceSpec& spec);

  // Evaluates with the parameters' values set in slots [0, params.size()); lets are written beside them.
  Verdict Evaluate(const Rule& rule, int64_t* slot_values) const {
    for (const int let : rule.lets) {
      const size_t slot = params.size() + static_cast<size_t>(let);
      if (!lets[static_cast<size_t>(let)].expression.Eval(slot_values, &slot_values[slot])) return Verdict::kNoValue;
    }
    int64_t value;
    if (!rule.expression.Eval(slot_values, &value)) return Verdict::kNoValue;
    return rule.is_let || value != 0 ? Verdict::kHolds : Verdict::kBroken;
  }
};

absl::StatusOr<SearchSpace::Compiled::Rule> SearchSpace::Compiled::MakeRule(const std::string& name,
                                                                            const std::string& text,
                                                                            size_t visible_lets) const {
  const auto expression = Expression::Parse(text);
  if (!expression.ok()) return Annotate(expression.status(), name);
  Rule rule;
  rule.name = name;
  std::set<int> needed, dependencies;
  for (const std::string& used : expression->names()) {
    const auto slot = static_cast<size_t>(std::find(slots.begin(), slots.end(), used) - slots.begin());
    if (slot < params.size()) dependencies.insert(static_cast<int>(slot));
    if (slot < params.size() || slot >= params.size() + let_count) continue;
    const size_t let = slot - params.size();
    if (let >= visible_lets) return Invalid(absl::StrCat(name, ": '", used, "' is used before it is defined"));
    needed.insert(lets[let].lets.begin(), lets[let].lets.end());
    needed.insert(static_cast<int>(let));
    dependencies.insert(lets[let].params.begin(), lets[let].params.end());
  }
  auto bound = BoundExpression::Bind(*expression, slots);
  if (!bound.ok()) return Annotate(bound.status(), name);
  rule.expression = *std::move(bound);
  rule.lets.assign(needed.begin(), needed.end());
  rule.params.assign(dependencies.begin(), dependencies.end());
  return rule;
}

absl::Status SearchSpace::Compiled::AddParam(const manifest::v1::Param& param) {
  const std::set<int64_t> distinct(param.value().begin(), param.value().end());
  if (distinct.empty()) return Invalid(absl::StrCat("parameter '", param.name(), "' has no values"));
  if (distinct.size() != static_cast<size_t>(param.value_size())) {
    return Invalid(absl::StrCat("parameter '", param.name(), "' has a value twice"));
  }
  if (distinct.size() > kMaxValues) {
    return Invalid(absl::StrCat("parameter '", param.name(), "' has more than ", kMaxValues, " values"));
  }
  params.push_back(param.name());
  values.emplace_back(param.value().begin(), param.value().end());
  return absl::OkStatus();
}

absl::Status SearchSpace::Compiled::Build(const SearchSpaceSpec& spec) {
  if (spec.params.size() > kMaxParams) return Invalid(absl::StrCat("more than ", kMaxParams, " parameters"));
  for (const auto& param : spec.params) RT_RETURN_IF_ERROR(AddParam(param));
  slots = params;
  let_count = spec.lets.size();
  for (const auto& let : spec.lets) slots.push_back(let.name());
  for (const auto& [name, value] : spec.fixed) slots.push_back(name);
  std::set<std::string> seen;
  for (const std::string& name : slots) {
    if (!seen.insert(name).second) return Invalid(absl::StrCat("'", name, "' is defined twice"));
  }
  fixed.assign(params.size() + let_count, 0);
  for (const auto& [name, value] : spec.fixed) fixed.push_back(value);

  checks.resize(params.size() + 1);
  for (const auto& let : spec.lets) {
    RT_ASSIGN_OR_RETURN(Rule rule, MakeRule(absl::StrCat("let ", let.name()), let.expr(), lets.size()));
    rule.is_let = true;
    checks[static_cast<size_t>(rule.level() + 1)].push_back(rule);
    lets.push_back(std::move(rule));
  }
  for (const auto& constraint : spec.constraints) {
    RT_ASSIGN_OR_RETURN(Rule rule, MakeRule(constraint.name(), constraint.expr(), lets.size()));
    checks[static_cast<size_t>(rule.level() + 1)].push_back(std::move(rule));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    has_when.push_back(!spec.params[i].when().empty());
    whens.emplace_back();
    if (!has_when.back()) continue;
    RT_ASSIGN_OR_RETURN(whens.back(), MakeRule(absl::StrCat("when ", params[i]), spec.params[i].when(), lets.size()));
    if (whens.back().level() >= static_cast<int>(i)) {
      return Invalid(absl::StrCat("when ", params[i], ": uses a parameter that does not come before it"));
    }
  }
  return absl::OkStatus();
}

// Walks the space depth first and cuts a subtree as soon as a check says so.
//
// Most checks depend on two or three parameters only, but are reached again for every value of the others
// that come before: their verdicts are remembered in a table over the parameters they depend on. The innermost
// parameter has stride 1, so that its loop reads a row.
class SearchSpace::Enumerator {
 public:
  Enumerator(const Compiled& compiled, int64_t max_valid, SearchSpace* space)
      : c_(compiled), max_valid_(max_valid), space_(*space), slots_(compiled.fixed), at_(compiled.params.size(), 0) {
    const size_t n = c_.params.size();
    below_.assign(n + 1, 1);
    for (size_t i = n; i-- > 0;) below_[i] = SaturatingMul(below_[i + 1], static_cast<int64_t>(c_.values[i].size()));
    checks_.resize(n + 1);
    for (size_t level = 0; level <= n; ++level) {
      for (const Compiled::Rule& rule : c_.checks[level]) checks_[level].push_back(Prepare(rule));
    }
  }

  absl::Status Run() {
    space_.total_points_ = below_[0];
    bool valid = true;
    for (Check& check : checks_[0]) {
      const Verdict verdict = c_.Evaluate(*check.rule, slots_.data());
      if (verdict == Verdict::kHolds) continue;
      Reject(check, verdict, below_[0]);
      valid = false;
      break;
    }
    if (valid && c_.params.empty()) space_.points_.push_back(0);
    if (valid && !c_.params.empty() && !Descend(0)) {
      return Error(absl::StatusCode::kResourceExhausted, "SPACE_TOO_LARGE",
                   absl::StrCat("more than ", max_valid_, " valid points; add constraints or drop values"));
    }
    for (const auto& level : checks_) {
      for (const Check& check : level) Count(check.rule->name, check.broken);
    }
    Count(kArithmetic, no_value_);
    return absl::OkStatus();
  }

 private:
  struct Check {
    const Compiled::Rule* rule;
    // Strides into `memo` of rule->params; the last is 1. Empty memo = evaluate every time.
    std::vector<int64_t> strides;
    std::vector<Verdict> memo;
    int64_t base = 0;  // of the current prefix
    int64_t broken = 0;
  };

  Check Prepare(const Compiled::Rule& rule) {
    Check check{&rule, {}, {}};
    int64_t size = 1;
    check.strides.resize(rule.params.size());
    for (size_t i = rule.params.size(); i-- > 0;) {
      check.strides[i] = size;
      size = SaturatingMul(size, static_cast<int64_t>(c_.values[static_cast<size_t>(rule.params[i])].size()));
    }
    // One that depends on everything before it meets each combination once: nothing to remember.
    const bool repeats = static_cast<int>(rule.params.size()) <= rule.level();
    if (repeats && size <= kMaxMemo && memo_total_ + size <= kMaxMemoTotal) {
      check.memo.assign(static_cast<size_t>(size), Verdict::kUnknown);
      memo_total_ += size;
    }
    return check;
  }

  void Count(const std::string& name, int64_t points) {
    if (points == 0) return;
    int64_t& count = space_.rejected_[name];
    count = SaturatingAdd(count, points);
  }

  void Reject(Check& check, Verdict verdict, int64_t points) {
    int64_t& count = verdict == Verdict::kNoValue ? no_value_ : check.broken;
    count = SaturatingAdd(count, points);
  }

  // Positions of parameter `level` to walk: all, or the first alone where it does not exist.
  size_t Positions(size_t level) {
    const size_t all = c_.values[level].size();
    if (!c_.has_when[level]) return all;
    const Verdict verdict = c_.Evaluate(c_.whens[level], slots_.data());
    if (verdict == Verdict::kHolds) return all;
    if (verdict == Verdict::kNoValue) {
      no_value_ = SaturatingAdd(no_value_, below_[level]);
      return 0;
    }
    Count(c_.whens[level].name, SaturatingMul(static_cast<int64_t>(all) - 1, below_[level + 1]));
    return 1;
  }

  // False if there are too many valid points.
  bool Descend(size_t level) {
    std::vector<Check>& checks = checks_[level + 1];
    for (Check& check : checks) {
      if (check.memo.empty()) continue;
      check.base = 0;
      for (size_t i = 0; i + 1 < check.strides.size(); ++i) {
        check.base += check.strides[i] * at_[static_cast<size_t>(check.rule->params[i])];
      }
    }
    const bool last = level + 1 == c_.params.size();
    const size_t positions = Positions(level);
    for (size_t position = 0; position < positions; ++position) {
      at_[level] = static_cast<uint8_t>(position);
      slots_[level] = c_.values[level][position];
      if (!Passes(checks, position, below_[level + 1])) continue;
      if (!last) {
        if (!Descend(level + 1)) return false;
        continue;
      }
      if (++valid_ > max_valid_) return false;
      space_.points_.insert(space_.points_.end(), at_.begin(), at_.end());
    }
    return true;
  }

  bool Passes(std::vector<Check>& checks, size_t position, int64_t points) {
    for (Check& check : checks) {
      Verdict verdict;
      if (check.memo.empty()) {
        verdict = c_.Evaluate(*check.rule, slots_.data());
      } else {
        Verdict& known = check.memo[static_cast<size_t>(check.base) + position];
        if (known == Verdict::kUnknown) known = c_.Evaluate(*check.rule, slots_.data());
        verdict = known;
      }
      if (verdict == Verdict::kHolds) continue;
      Reject(check, verdict, points);
      return false;
    }
    return true;
  }

  const Compiled& c_;
  const int64_t max_valid_;
  SearchSpace& space_;
  std::vector<int64_t> slots_;
  std::vector<uint8_t> at_;
  std::vector<int64_t> below_;  // points of a subtree whose first parameter is i
  std::vector<std::vector<Check>> checks_;
  int64_t memo_total_ = 0;
  int64_t no_value_ = 0;
  int64_t valid_ = 0;
};

absl::StatusOr<SearchSpace> SearchSpace::Create(const SearchSpaceSpec& spec, int64_t max_valid) {
  auto compiled = std::make_shared<Compiled>();
  RT_RETURN_IF_ERROR(compiled->Build(spec));
  SearchSpace space;
  space.params_ = compiled->params;
  space.values_ = compiled->values;
  RT_RETURN_IF_ERROR(Enumerator(*compiled, max_valid, &space).Run());
  space.points_.shrink_to_fit();
  space.compiled_ = std::move(compiled);
  return space;
}

absl::StatusOr<std::string> SearchSpace::WhyRejected(const SearchSpaceSpec& spec, const Config& config) {
  auto compiled = std::make_shared<Compiled>();
  RT_RETURN_IF_ERROR(compiled->Build(spec));
  SearchSpace space;
  space.params_ = compiled->params;
  space.values_ = compiled->values;
  space.compiled_ = std::move(compiled);
  return space.WhyRejected(config);
}

absl::Status SearchSpace::Check(const SearchSpaceSpec& spec) { return Compiled().Build(spec); }

Config SearchSpace::At(int64_t index) const {
  Config config;
  const uint8_t* point = points_.data() + static_cast<size_t>(index) * params_.size();
  for (size_t i = 0; i < params_.size(); ++i) config[params_[i]] = values_[i][point[i]];
  return config;
}

int64_t SearchSpace::IndexOf(const Config& config) const {
  const size_t width = params_.size();
  if (config.size() != width) return -1;
  if (width == 0) return size() > 0 ? 0 : -1;
  std::vector<uint8_t> point(width);
  for (size_t i = 0; i < width; ++i) {
    const auto given = config.find(params_[i]);
    if (given == config.end()) return -1;
    const auto value = std::find(values_[i].begin(), values_[i].end(), given->second);
    if (value == values_[i].end()) return -1;
    point[i] = static_cast<uint8_t>(value - values_[i].begin());
  }
  // Points are enumerated in ascending order of their positions.
  int64_t low = 0, high = size();
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const int order = std::memcmp(points_.data() + static_cast<size_t>(middle) * width, point.data(), width);
    if (order == 0) return middle;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return -1;
}

int64_t SearchSpace::Nearest(const Config& config) const {
  const size_t width = params_.size();
  // Positions of the wanted values; kMaxValues, which no point has, where there is none.
  std::vector<int> wanted(width, kMaxValues);
  for (size_t i = 0; i < width; ++i) {
    const auto given = config.find(params_[i]);
    if (given == config.end()) continue;
    const auto value = std::find(values_[i].begin(), values_[i].end(), given->second);
    if (value != values_[i].end()) wanted[i] = static_cast<int>(value - values_[i].begin());
  }
  int64_t nearest = -1;
  size_t fewest = width + 1;
  for (int64_t index = 0; index < size(); ++index) {
    const uint8_t* point = points_.data() + static_cast<size_t>(index) * width;
    size_t changed = 0;
    for (size_t i = 0; i < width; ++i) changed += point[i] != wanted[i];
    if (changed >= fewest) continue;
    fewest = changed;
    nearest = index;
  }
  return nearest;
}

std::string SearchSpace::WhyRejected(const Config& config) const {
  for (const auto& [name, value] : config) {
    if (std::find(params_.begin(), params_.end(), name) == params_.end())
      return absl::StrCat("unknown parameter ", name);
  }
  std::vector<int64_t> slots = compiled_->fixed;
  const auto broken = [&](const Compiled::Rule& rule) -> std::string {
    const Verdict verdict = compiled_->Evaluate(rule, slots.data());
    return verdict == Verdict::kHolds ? "" : verdict == Verdict::kNoValue ? kArithmetic : rule.name;
  };
  for (size_t level = 0; level <= params_.size(); ++level) {
    if (level > 0) {
      const size_t i = level - 1;
      const auto given = config.find(params_[i]);
      if (given == config.end()) return absl::StrCat("missing parameter ", params_[i]);
      slots[i] = given->second;
      if (std::find(values_[i].begin(), values_[i].end(), given->second) == values_[i].end()) {
        return absl::StrCat("value ", given->second, " of ", params_[i], " is not one of its values");
      }
      // Where the parameter does not exist, only its first value is a point.
      const std::string reason = compiled_->has_when[i] ? broken(compiled_->whens[i]) : "";
      if (reason == kArithmetic || (!reason.empty() && given->second != values_[i][0])) return reason;
    }
    for (const Compiled::Rule& rule : compiled_->checks[level]) {
      if (std::string reason = broken(rule); !reason.empty()) return reason;
    }
  }
  return "";
}

}  // namespace rooftune
