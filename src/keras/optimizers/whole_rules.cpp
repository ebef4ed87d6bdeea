// Lamb, Adafactor and Muon: their steps need norms, means or products of whole variables, so that
// one replica does all of a variable, in two or three passes over it.

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>

#include "keras/optimizers/loops.h"
#include "keras/optimizers/rules.h"
#include "tutti/tensor/flat_buffer.h"

namespace tutti::keras::optimizers {
namespace {

/// Directions of so many weights at a time stay in the first-level cache.
constexpr int64_t kChunk = 2048;

/// Every variable is taken whole: `template <class T> void run_whole(std::size_t variable, Tensor&
/// weights, const Tensor& gradients, std::vector<Tensor>& slots, bool decay) const`.
template <class Class>
class WholeRule : public Rule {
 public:
  using Rule::Rule;
  bool needs_whole(std::size_t /*variable*/) const override { return true; }
  void update(float*, const float*, float* const*, int64_t, bool) const override { refuse(); }
  void update(double*, const double*, double* const*, int64_t, bool) const override { refuse(); }
  void update_whole(std::size_t variable, Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                    bool decay) const override {
    if (w.scalar_type() == at::kFloat) {
      static_cast<const Class*>(this)->template run_whole<float>(variable, w, g, slots, decay);
    } else {
      static_cast<const Class*>(this)->template run_whole<double>(variable, w, g, slots, decay);
    }
  }

 private:
  [[noreturn]] static void refuse() {
    throw Internal("optimizer: a part of a variable, expected all of it; a defect of the library");
  }
};

template <class T>
T* data_of(const Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// ---- Lamb
// -------------------------------------------------------------------------------------------------------------------

class LambRule : public WholeRule<LambRule> {
 public:
  explicit LambRule(const LambOptions& options)
      : WholeRule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override { return {"momentum", "velocity"}; }
  void begin_step(int64_t iteration) override {
    Rule::begin_step(iteration);
    const auto t = static_cast<double>(iteration + 1);
    set(scalars_.single, t);
    set(scalars_.full, t);
  }
  template <class T>
  void run_whole(std::size_t /*variable*/, Tensor& weights, const Tensor& gradients,
                 std::vector<Tensor>& slots, bool decay) const {
    const LambScalars<T>& scalars = scalars_.of<T>();
    const int64_t numel = weights.numel();
    T* w = data_of<T>(weights);
    const T* g = data_of<T>(gradients);
    T* m = data_of<T>(slots[0]);
    T* v = data_of<T>(slots[1]);
    double of_weights = 0;
    double of_direction = 0;
    alignas(64) std::array<T, kChunk> direction;
    for (int64_t at = 0; at < numel; at += kChunk) {
      const int64_t n = std::min(kChunk, numel - at);
      run_lamb_moments(g + at, m + at, v + at, direction.data(), n, scalars);
      of_direction += run_sum_squares(direction.data(), n);
      of_weights += run_sum_squares(w + at, n);
    }
    const double step = rate_ * ratio(std::sqrt(of_weights) * keep(decay), std::sqrt(of_direction));
    run_lamb_step(w, m, v, numel, static_cast<T>(keep(decay)), static_cast<T>(step), scalars);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    slots[0].add_((g - slots[0]) * (1 - options_.beta_1));
    slots[1].add_((g.square() - slots[1]) * (1 - options_.beta_2));
    const bool full = w.scalar_type() == at::kDouble;
    const double unbias_1 = full ? scalars_.full.unbias_1 : scalars_.single.unbias_1;
    const double unbias_2 = full ? scalars_.full.unbias_2 : scalars_.single.unbias_2;
    const Tensor direction =
        slots[0] * unbias_1 / ((slots[1] * unbias_2).sqrt() + options_.epsilon);
    w.sub_(direction, rate_ * ratio(w.norm().item<double>(), direction.norm().item<double>()));
  }

 private:
  static double ratio(double of_weights, double of_direction) {
    return of_weights > 0 && of_direction > 0 ? of_weights / of_direction : 1;
  }
  template <class T>
  void set(LambScalars<T>& scalars, double t) const {
    const auto power = [&](double beta) {
      return std::pow(static_cast<T>(beta), static_cast<T>(t));
    };
    scalars = {static_cast<T>(1 - options_.beta_1), static_cast<T>(1 - options_.beta_2),
               static_cast<T>(options_.epsilon), 1 / (1 - power(options_.beta_1)),
               1 / (1 - power(options_.beta_2))};
  }
  LambOptions options_;
  BothDtypes<LambScalars> scalars_;
};

// ---- Adafactor
// -------------------------------------------------------------------------------------------------------------------

class AdafactorRule : public WholeRule<AdafactorRule> {
 public:
  explicit AdafactorRule(const AdafactorOptions& options)
      : WholeRule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override { return {"r", "c", "velocity"}; }
  void bind(const std::vector<Variable>& variables) override {
    columns_.resize(variables.size());
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const auto sizes = variables[i].sizes();
      if (sizes.size() >= 2) columns_[i].resize(static_cast<std::size_t>(sizes.back()));
    }
  }
  Tensor initial_slot(std::size_t slot, std::size_t /*variable*/,
                      const Tensor& weights) const override {
    if (slot == 2) return zeros_like_dense(weights);
    if (weights.dim() < 2) return Tensor();
    std::vector<int64_t> shape = weights.sizes().vec();
    shape.erase(shape.end() - (slot == 0 ? 1 : 2));
    return at::zeros(shape, weights.options());
  }
  void begin_step(int64_t iteration) override {
    Rule::begin_step(iteration);
    const auto t = static_cast<double>(iteration + 1);
    beta_2_ = 1 - std::pow(t, options_.beta_2_decay);
    relative_rate_ = std::min(rate_, 1 / std::sqrt(t));
  }
  template <class T>
  void run_whole(std::size_t variable, Tensor& weights, const Tensor& gradients,
                 std::vector<Tensor>& slots, bool decay) const {
    if (weights.dim() >= 2 && !weights.is_contiguous())  // rows do not lie one after the other
      return update_tensors(weights, gradients, slots, decay);
    T* w = data_of<T>(weights);
    const T* g = data_of<T>(gradients);
    T* v = data_of<T>(slots[2]);
    const int64_t numel = weights.numel();
    const double of_update =
        weights.dim() < 2 ? plain<T>(g, v, numel) : factored<T>(variable, gradients, slots);
    const double mean_weights = run_sum_squares(w, numel) / static_cast<double>(numel);
    const double step = step_of(std::sqrt(mean_weights) * keep(decay),
                                std::sqrt(of_update / static_cast<double>(numel)));
    run_adafactor_step(w, g, v, numel, static_cast<T>(keep(decay)), static_cast<T>(step));
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    w.mul_(keep(decay));
    const Tensor squares = g.square() + options_.epsilon_1;
    const double rest = 1 - beta_2_;
    if (w.dim() >= 2) {
      slots[0].mul_(beta_2_).add_(squares.mean(-1), rest);
      slots[1].mul_(beta_2_).add_(squares.mean(-2), rest);
      slots[2].copy_((slots[0] / slots[0].mean(-1, /*keepdim=*/true)).unsqueeze(-1) *
                     slots[1].unsqueeze(-2));
    } else {
      slots[2].mul_(beta_2_).add_(squares, rest);
    }
    const Tensor update = g / slots[2].sqrt();
    const auto rms = [](const Tensor& x) { return x.square().mean().sqrt().item<double>(); };
    w.sub_(update, step_of(rms(w), rms(update)));
  }

 private:
  double step_of(double rms_weights, double rms_update) const {
    return std::max(options_.epsilon_2, rms_weights) * relative_rate_ /
           std::max(1.0, rms_update / options_.clip_threshold);
  }
  /// Moves the second moment; the sum of the squares of the update.
  template <class T>
  double plain(const T* g, T* v, int64_t numel) const {
    const AdafactorScalars<T> scalars{static_cast<T>(beta_2_), static_cast<T>(options_.epsilon_1)};
    alignas(64) std::array<T, kChunk> update;
    double squares = 0;
    for (int64_t at = 0; at < numel; at += kChunk) {
      const int64_t n = std::min(kChunk, numel - at);
      run_adafactor_moment(g + at, v + at, update.data(), n, scalars);
      squares += run_sum_squares(update.data(), n);
    }
    return squares;
  }
  /// The same by rows and columns of each matrix of the last two axes.
  template <class T>
  double factored(std::size_t variable, const Tensor& gradients, std::vector<Tensor>& slots) const {
    const int64_t rows = gradients.size(-2);
    const int64_t columns = gradients.size(-1);
    const int64_t matrices = gradients.numel() / (rows * columns);
    double squares = 0;
    for (int64_t i = 0; i < matrices; ++i) {
      const T* g = data_of<T>(gradients) + i * rows * columns;
      T* r = data_of<T>(slots[0]) + i * rows;
      T* c = data_of<T>(slots[1]) + i * columns;
      const double mean = move_means(g, r, c, columns_[variable], rows);
      squares += move_matrix(g, r, c, data_of<T>(slots[2]) + i * rows * columns, rows, columns,
                             static_cast<T>(mean));
    }
    return squares;
  }
  /// The mean of r.
  template <class T>
  double move_means(const T* g, T* r, T* c, std::vector<double>& sums, int64_t rows) const {
    const auto columns = static_cast<int64_t>(sums.size());
    const auto epsilon_1 = static_cast<T>(options_.epsilon_1);
    const auto moved = [&](T old, double mean) {
      return static_cast<T>(beta_2_ * static_cast<double>(old) + (1 - beta_2_) * mean);
    };
    std::fill(sums.begin(), sums.end(), 0.0);
    double of_rows = 0;
    for (int64_t i = 0; i < rows; ++i, g += columns) {
      run_adafactor_columns(g, sums.data(), columns, epsilon_1);
      const double mean = run_sum_squares(g, columns) / static_cast<double>(columns);
      r[i] = moved(r[i], mean + options_.epsilon_1);
      of_rows += static_cast<double>(r[i]);
    }
    for (int64_t j = 0; j < columns; ++j)
      c[j] = moved(c[j], sums[static_cast<std::size_t>(j)] / static_cast<double>(rows));
    return of_rows / static_cast<double>(rows);
  }
  template <class T>
  static double move_matrix(const T* g, const T* r, const T* c, T* v, int64_t rows, int64_t columns,
                            T mean) {
    alignas(64) std::array<T, kChunk> update;
    double squares = 0;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t at = 0; at < columns; at += kChunk) {
        const int64_t n = std::min(kChunk, columns - at);
        const int64_t place = i * columns + at;
        run_adafactor_row(g + place, c + at, v + place, update.data(), n, r[i] / mean);
        squares += run_sum_squares(update.data(), n);
      }
    }
    return squares;
  }

  AdafactorOptions options_;
  double beta_2_ = 0;
  double relative_rate_ = 0;
  mutable std::vector<std::vector<double>> columns_;  // sums, by variable: one replica has it
};

// ---- Muon
// -------------------------------------------------------------------------------------------------------------------

class MuonRule : public LoopRule<MuonRule> {
 public:
  explicit MuonRule(const MuonOptions& options)
      : LoopRule(options.learning_rate, options.weight_decay), options_(options) {}
  std::vector<std::string> slot_names() const override { return {"momentum", "velocity"}; }
  void bind(const std::vector<Variable>& variables) override {
    matrices_.assign(variables.size(), 0);
    room_.resize(variables.size());
    for (std::size_t i = 0; i < variables.size(); ++i)
      matrices_[i] = variables[i].sizes().size() == 2 && !is_excluded(variables[i].name()) ? 1 : 0;
  }
  Tensor initial_slot(std::size_t slot, std::size_t variable,
                      const Tensor& weights) const override {
    return slot == 1 && matrices_[variable] != 0 ? Tensor() : zeros_like_dense(weights);
  }
  bool needs_whole(std::size_t variable) const override { return matrices_[variable] != 0; }
  void begin_step(int64_t iteration) override {
    Rule::begin_step(iteration);
    const auto t = static_cast<double>(iteration + 1);
    set(scalars_.single, t);
    set(scalars_.full, t);
  }
  /// Adam.
  template <class T>
  void run(T* w, const T* g, T* const* s, int64_t n, bool decay) const {
    AdamScalars<T> scalars = scalars_.of<T>();
    scalars.keep = static_cast<T>(keep_of_adam(decay));
    run_adam(w, g, s[0], s[1], n, scalars);
  }
  void update_whole(std::size_t variable, Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                    bool decay) const override {
    if (!w.is_contiguous()) return update_tensors(w, g, slots, decay);
    if (w.scalar_type() == at::kFloat) {
      update_matrix<float>(room_[variable], w, g, slots[0], decay);
    } else {
      update_matrix<double>(room_[variable], w, g, slots[0], decay);
    }
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& slots,
                      bool decay) const override {
    if (!slots[1].defined()) return update_matrix_by_tensors(w, g, slots[0], decay);
    w.mul_(keep_of_adam(decay));
    slots[0].add_((g - slots[0]) * (1 - options_.adam_beta_1));
    slots[1].add_((g.square() - slots[1]) * (1 - options_.adam_beta_2));
    const double alpha =
        w.scalar_type() == at::kDouble ? scalars_.full.alpha : scalars_.single.alpha;
    w.sub_(slots[0] * alpha / (slots[1].sqrt() + options_.epsilon));
  }

 private:
  /// What a matrix is worked on in, kept from step to step.
  struct Room {
    Tensor x, next, square, polynomial;
  };

  bool is_excluded(const std::string& name) const {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    if (options_.exclude_embeddings && lower.find("embedding") != std::string::npos) return true;
    return std::any_of(
        options_.exclude_layers.begin(), options_.exclude_layers.end(),
        [&](const std::string& pattern) { return std::regex_search(name, std::regex(pattern)); });
  }
  template <class T>
  void set(AdamScalars<T>& scalars, double t) const {
    const auto unbiased = [&](double beta) {
      return 1 - std::pow(static_cast<T>(beta), static_cast<T>(t));
    };
    scalars.alpha = static_cast<T>(rate_ * options_.adam_lr_ratio) *
                    std::sqrt(unbiased(options_.adam_beta_2)) / unbiased(options_.adam_beta_1);
    scalars.rest_1 = static_cast<T>(1 - options_.adam_beta_1);
    scalars.rest_2 = static_cast<T>(1 - options_.adam_beta_2);
    scalars.epsilon = static_cast<T>(options_.epsilon);
  }
  double keep_of_adam(bool decay) const {
    return decay ? 1 - rate_ * options_.adam_weight_decay.value_or(0) : 1;
  }
  double step_of(const Tensor& w) const {
    const auto longest = static_cast<double>(std::max(w.size(0), w.size(1)));
    return options_.rms_rate ? rate_ * std::sqrt(longest) * *options_.rms_rate : rate_;
  }
  template <class T>
  void update_matrix(Room& room, Tensor& w, const Tensor& g, Tensor& m, bool decay) const {
    if (!room.x.defined()) {
      const int64_t side = std::min(w.size(0), w.size(1));
      room.x = at::empty_like(w);
      room.next = at::empty_like(w);
      room.square = at::empty({side, side}, w.options());
      room.polynomial = at::empty({side, side}, w.options());
    }
    const int64_t numel = w.numel();
    run_muon_moment(data_of<T>(g), data_of<T>(m), data_of<T>(room.x), numel,
                    static_cast<T>(options_.momentum), options_.nesterov);
    room.x.div_(std::sqrt(run_sum_squares(data_of<T>(room.x), numel)) + 1e-7);
    orthogonalize(room);
    run_scaled_sub(data_of<T>(w), data_of<T>(room.x), numel, static_cast<T>(keep(decay)),
                   static_cast<T>(step_of(w)));
  }
  void update_matrix_by_tensors(Tensor& w, const Tensor& g, Tensor& m, bool decay) const {
    w.mul_(keep(decay));
    m.mul_(options_.momentum).add_(g);
    Room room;
    room.x = options_.nesterov ? g + m * options_.momentum : m.clone();
    room.x = (room.x / (room.x.norm() + 1e-7)).contiguous();
    const int64_t side = std::min(w.size(0), w.size(1));
    room.next = at::empty_like(room.x);
    room.square = at::empty({side, side}, w.options());
    room.polynomial = at::empty({side, side}, w.options());
    orthogonalize(room);
    w.sub_(room.x, step_of(w));
  }
  /// On the shorter side: of a tall matrix x^T is meant, whose square is x^T x.
  void orthogonalize(Room& room) const {
    const bool tall = room.x.size(0) > room.x.size(1);
    for (int64_t i = 0; i < options_.ns_steps; ++i) {
      if (tall) {
        at::mm_out(room.square, room.x.t(), room.x);
      } else {
        at::mm_out(room.square, room.x, room.x.t());
      }
      at::addmm_out(room.polynomial, room.square, room.square, room.square, options_.muon_b,
                    options_.muon_c);
      if (tall) {
        at::addmm_out(room.next, room.x, room.x, room.polynomial, options_.muon_a, 1);
      } else {
        at::addmm_out(room.next, room.x, room.polynomial, room.x, options_.muon_a, 1);
      }
      std::swap(room.x, room.next);
    }
  }

  MuonOptions options_;
  BothDtypes<AdamScalars> scalars_;
  std::vector<char> matrices_;      // by variable: orthogonalised
  mutable std::vector<Room> room_;  // by variable: one replica has it
};

}  // namespace

std::shared_ptr<Rule> make_rule(const LambOptions& options) {
  return std::make_shared<LambRule>(options);
}
std::shared_ptr<Rule> make_rule(const AdafactorOptions& options) {
  return std::make_shared<AdafactorRule>(options);
}
std::shared_ptr<Rule> make_rule(const MuonOptions& options) {
  return std::make_shared<MuonRule>(options);
}

}  // namespace tutti::keras::optimizers
