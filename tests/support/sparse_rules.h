#pragma once
// Small update rules for tests of the fused pass.

#include <cmath>
#include <string>
#include <vector>

#include "tutti/distribute/fused_update.h"

namespace tutti::testing {

/// w -= 0.1 g.
struct PlainRule : distribute::UpdateRule {
  std::vector<std::string> slot_names() const override { return {}; }
  void begin_step(int64_t) override {}
  bool is_identity_at_zero(bool) const override { return true; }
  template <class T>
  static void loop(T* w, const T* g, int64_t n) {
    for (int64_t i = 0; i < n; ++i) w[i] -= T(0.1) * g[i];
  }
  void update(float* w, const float* g, float* const*, int64_t n, bool) const override {
    loop(w, g, n);
  }
  void update(double* w, const double* g, double* const*, int64_t n, bool) const override {
    loop(w, g, n);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>&, bool) const override {
    w.sub_(g * 0.1);
  }
};

/// m = 0.5 m + g, w -= 0.1 m: rows without gradient move too.
struct MomentumRule : distribute::UpdateRule {
  std::vector<std::string> slot_names() const override { return {"momentum"}; }
  void begin_step(int64_t) override {}
  template <class T>
  static void loop(T* w, const T* g, T* m, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      m[i] = T(0.5) * m[i] + g[i];
      w[i] -= T(0.1) * m[i];
    }
  }
  void update(float* w, const float* g, float* const* s, int64_t n, bool) const override {
    loop(w, g, s[0], n);
  }
  void update(double* w, const double* g, double* const* s, int64_t n, bool) const override {
    loop(w, g, s[0], n);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& s, bool) const override {
    w.sub_(s[0].mul_(0.5).add_(g) * 0.1);
  }
};

/// a += g^2, w -= 0.1 g / sqrt(a + 0.01).
struct AdagradRule : distribute::UpdateRule {
  std::vector<std::string> slot_names() const override { return {"accumulator"}; }
  double slot_initial_value() const override { return 0.1; }
  void begin_step(int64_t) override {}
  bool is_identity_at_zero(bool) const override { return true; }
  template <class T>
  static void loop(T* w, const T* g, T* a, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      a[i] += g[i] * g[i];
      w[i] -= T(0.1) * g[i] / std::sqrt(a[i] + T(0.01));
    }
  }
  void update(float* w, const float* g, float* const* s, int64_t n, bool) const override {
    loop(w, g, s[0], n);
  }
  void update(double* w, const double* g, double* const* s, int64_t n, bool) const override {
    loop(w, g, s[0], n);
  }
  void update_tensors(Tensor& w, const Tensor& g, std::vector<Tensor>& s, bool) const override {
    s[0].add_(g.square());
    w.sub_(g * 0.1 / (s[0] + 0.01).sqrt());
  }
};

}  // namespace tutti::testing
