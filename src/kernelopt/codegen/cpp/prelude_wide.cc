// Prelude: totals that are wider than the values they add up.
namespace kernelopt {

const char* prelude_wide_text() {
  return R"KO(
// A vector of floats as doubles, in two halves.
typedef double hd __attribute__((vector_size(sizeof(double) * KO_LANES / 2)));
struct wf { hd lo, hi; };
template <typename V> struct WideOf { typedef V type; };
template <> struct WideOf<float> { typedef double type; };
template <> struct WideOf<vf> { typedef wf type; };
template <typename V> using wide = typename WideOf<V>::type;
KO_INLINE wf operator+(wf a, wf b) { return {a.lo + b.lo, a.hi + b.hi}; }
KO_INLINE wf operator-(wf a, wf b) { return {a.lo - b.lo, a.hi - b.hi}; }
KO_INLINE wf operator*(wf a, wf b) { return {a.lo * b.lo, a.hi * b.hi}; }
KO_INLINE wf operator*(wf a, double b) { return {a.lo * b, a.hi * b}; }
KO_INLINE wf operator-(wf a, double b) { return {a.lo - b, a.hi - b}; }
KO_INLINE double widen(float x) { return x; }
KO_INLINE double widen(double x) { return x; }
KO_INLINE vd widen(vd x) { return x; }
KO_INLINE wf widen(vf x) {
#if defined(KO_AVX512)
  return {(hd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x)), (hd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1))};
#elif defined(KO_AVX2)
  return {(hd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x)), (hd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1))};
#else
  wf r = {};
  for (int l = 0; l < W / 2; ++l) { r.lo[l] = x[l]; r.hi[l] = x[l + W / 2]; }
  return r;
#endif
}
template <typename V> KO_INLINE V narrow(wide<V> x) {
  if constexpr (std::is_same_v<V, vf>) {
#if defined(KO_AVX512)
    return (vf)_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)x.lo)), _mm512_cvtpd_ps((__m512d)x.hi), 1);
#elif defined(KO_AVX2)
    return (vf)_mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps((__m256d)x.lo)), _mm256_cvtpd_ps((__m256d)x.hi), 1);
#else
    vf r = {};
    for (int l = 0; l < W / 2; ++l) { r[l] = float(x.lo[l]); r[l + W / 2] = float(x.hi[l]); }
    return r;
#endif
  } else {
    return V(x);
  }
}
// The same where the result may also stay wide.
template <typename V, typename X> KO_INLINE V narrow_to(X x) {
  if constexpr (std::is_same_v<V, vd> && std::is_same_v<X, wf>) {
    vd r = {};
    for (int l = 0; l < W / 2; ++l) { r[l] = x.lo[l]; r[l + W / 2] = x.hi[l]; }
    return r;
  } else {
    return narrow<V>(x);
  }
}
// Sum over the first n lanes.
KO_INLINE double total_of(wf x, int n = W) {
  double r = 0;
  if (n == W) {
    hd s = x.lo + x.hi;
    for (int l = 0; l < W / 2; ++l) r += s[l];
    return r;
  }
  for (int l = 0; l < W / 2; ++l) r += (l < n ? x.lo[l] : 0.0) + (l + W / 2 < n ? x.hi[l] : 0.0);
  return r;
}
KO_INLINE double total_of(vd x, int n = W) {
  double r = 0;
  for (int l = 0; l < W; ++l) r += l < n ? x[l] : 0.0;
  return r;
}
// Adds a partial sum to its total and starts the next one.
template <typename V> KO_INLINE void flush_sum(V& part, wide<V>& total) {
  total = total + widen(part);
  part = V{};
}
KO_INLINE double not_negative(double x) { return x < 0 ? 0 : x; }
KO_INLINE vd not_negative(vd x) { return x < 0 ? vd{} : x; }
KO_INLINE wf not_negative(wf x) { return {x.lo < 0 ? hd{} : x.lo, x.hi < 0 ? hd{} : x.hi}; }
// Where values are smaller than their spread, the mean as a shift would round them for nothing.
KO_INLINE double shift_for(double mean, double m2, double n) { return mean * mean * n > m2 ? mean : 0; }
KO_INLINE vd shift_for(vd mean, vd m2, double n) { return mean * mean * n > m2 ? mean : vd{}; }
KO_INLINE wf shift_for(wf mean, wf m2, double n) {
  return {mean.lo * mean.lo * n > m2.lo ? mean.lo : hd{}, mean.hi * mean.hi * n > m2.hi ? mean.hi : hd{}};
}
// Welford by shifted sums: of x - shift and of its square, in the values' own type (s1, s2) and wider (t1, t2).
// join_welford makes the `pending` values part of mean, m2 and weight (Chan) and takes the mean so far, or nothing, as the next shift;
// done whenever the values have doubled, so that what cancels is never much larger than what is left.
template <typename V> KO_INLINE void join_welford(V& shift, wide<V>& t1, wide<V>& t2, int64_t& pending, wide<V>& mean, wide<V>& m2, double& weight) {
  if (pending == 0) return;
  const double k = double(pending), joined = weight + k;
  const wide<V> offset = t1 * (1 / k), delta = (widen(shift) - mean) + offset;
  m2 = m2 + not_negative(t2 - t1 * offset) + delta * delta * (weight * k / joined);
  mean = mean + delta * (k / joined);
  weight = joined;
  shift = narrow<V>(shift_for(mean, m2, weight));
  t1 = wide<V>{};
  t2 = wide<V>{};
  pending = 0;
}
template <typename V>
KO_INLINE void flush_welford(V& shift, V& s1, V& s2, int64_t& count, wide<V>& t1, wide<V>& t2, int64_t& pending, wide<V>& mean, wide<V>& m2, double& weight) {
  t1 = t1 + widen(s1);
  t2 = t2 + widen(s2);
  s1 = V{};
  s2 = V{};
  pending += count;
  count = 0;
  if (double(pending) >= weight) join_welford<V>(shift, t1, t2, pending, mean, m2, weight);
}
// A mean that has met an infinity or a NaN is NaN, in whatever order the values came.
KO_INLINE double mean_unless_nan(double mean, double m2) { return m2 == m2 ? mean : m2; }
KO_INLINE vd mean_unless_nan(vd mean, vd m2) { return m2 == m2 ? mean : m2; }
KO_INLINE wf mean_unless_nan(wf mean, wf m2) { return {m2.lo == m2.lo ? mean.lo : m2.lo, m2.hi == m2.hi ? mean.hi : m2.hi}; }
)KO";
}

}  // namespace kernelopt
