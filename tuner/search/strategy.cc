#include "tuner/search/strategy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace rooftune {
namespace {

// Every fifth proposal of MODEL ignores the model.
constexpr int kRandomEvery = 5;

// SplitMix64 (Steele, Lea, Flood 2014): the standard library's distributions differ between
// implementations, and a seed must give the same order everywhere.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Uniform in [0, bound); bound > 0. Rejects the incomplete last interval so that nothing is favoured.
  uint64_t Below(uint64_t bound) {
    const uint64_t reject_below = (0 - bound) % bound;
    while (true) {
      const uint64_t draw = Next();
      if (draw >= reject_below) return draw % bound;
    }
  }

 private:
  uint64_t state_;
};

// Not a number counts as no chance, so that sorting stays a strict weak order.
double Rankable(double predicted_us) {
  return std::isnan(predicted_us) ? std::numeric_limits<double>::infinity() : predicted_us;
}

void Shuffle(std::vector<int64_t>* order, SplitMix64* random) {
  for (size_t i = order->size(); i > 1; --i) std::swap((*order)[i - 1], (*order)[random->Below(i)]);
}

// `sorted` is by predicted time; every fifth place of the result is drawn from what has no place yet.
std::vector<int64_t> MixWithRandom(const std::vector<int64_t>& sorted, SplitMix64* random) {
  // Ranks without a place, in no order, and where each rank lies among them (or -1): removal in O(1).
  std::vector<size_t> pool(sorted.size());
  std::iota(pool.begin(), pool.end(), size_t{0});
  std::vector<int64_t> slot(sorted.size());
  std::iota(slot.begin(), slot.end(), int64_t{0});
  const auto remove = [&](size_t rank) {
    const auto at = static_cast<size_t>(slot[rank]);
    pool[at] = pool.back();
    slot[pool[at]] = static_cast<int64_t>(at);
    pool.pop_back();
    slot[rank] = -1;
  };

  std::vector<int64_t> order;
  order.reserve(sorted.size());
  size_t best = 0;
  while (!pool.empty()) {
    size_t rank;
    if ((order.size() + 1) % kRandomEvery == 0) {
      rank = pool[random->Below(pool.size())];
    } else {
      while (slot[best] < 0) ++best;
      rank = best;
    }
    remove(rank);
    order.push_back(sorted[rank]);
  }
  return order;
}

// All three strategies fix their order at creation; what is told does not change it.
class FixedOrder : public Strategy {
 public:
  FixedOrder(std::string name, std::vector<int64_t> order) : name_(std::move(name)), order_(std::move(order)) {}

  std::string name() const override { return name_; }

  std::optional<int64_t> Next() override {
    if (next_ == order_.size()) return std::nullopt;
    return order_[next_++];
  }

  void Tell(int64_t, v1::Outcome, std::optional<double>) override {}

 private:
  const std::string name_;
  const std::vector<int64_t> order_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Strategy>> MakeStrategy(v1::StrategyKind kind, std::vector<SearchPoint> points,
                                                       uint64_t seed) {
  if (kind == v1::STRATEGY_KIND_UNSPECIFIED) kind = v1::MODEL;
  if (!v1::StrategyKind_IsValid(kind)) {
    return Error(absl::StatusCode::kInvalidArgument, "UNKNOWN_STRATEGY",
                 absl::StrCat("strategy ", static_cast<int>(kind), " is not known: use EXHAUSTIVE, RANDOM or MODEL"));
  }
  std::vector<int64_t> order;
  std::vector<int64_t> rest;
  for (size_t i = 0; i < points.size(); ++i) {
    (points[i].is_default ? order : rest).push_back(static_cast<int64_t>(i));
  }
  SplitMix64 random(seed);
  if (kind == v1::RANDOM) {
    Shuffle(&rest, &random);
  } else if (kind == v1::MODEL) {
    std::stable_sort(rest.begin(), rest.end(), [&points](int64_t a, int64_t b) {
      return Rankable(points[static_cast<size_t>(a)].predicted_us) <
             Rankable(points[static_cast<size_t>(b)].predicted_us);
    });
    rest = MixWithRandom(rest, &random);
  }
  order.insert(order.end(), rest.begin(), rest.end());
  return std::make_unique<FixedOrder>(v1::StrategyKind_Name(kind), std::move(order));
}

}  // namespace rooftune
