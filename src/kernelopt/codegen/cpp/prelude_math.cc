// Prelude, third part: our own elementary functions (about one or two units in the last place), the functions that are
// taken from torch's vector headers, and transposes in registers.
namespace kernelopt {

const char* prelude_math_text() {
  return R"KO(
// 2^n for integral n in [-252, 254], applied in two steps so that subnormal results round once at the end.
KO_INLINE vf scale2(vf x, vf n) {
#ifdef KO_AVX512
  return (vf)_mm512_scalef_ps((__m512)x, (__m512)n);
#else
  const vi i = __builtin_convertvector(n, vi), h = i >> 1, r = i - h;
  return x * (vf)((h + 127) << 23) * (vf)((r + 127) << 23);
#endif
}
// exp(r) - 1 = r + r^2 q(r) on |r| <= ln2 / 2 (Cephes' coefficients).
KO_INLINE vf exp_core(vf r) {
  vf q = splat(1.9875691500e-4f);
  q = fma(q, r, splat(1.3981999507e-3f));
  q = fma(q, r, splat(8.3334519073e-3f));
  q = fma(q, r, splat(4.1665795894e-2f));
  q = fma(q, r, splat(1.6666665459e-1f));
  q = fma(q, r, splat(5.0000001201e-1f));
  return fma(q, r * r, r);
}
// Lanes whose result rounds to zero never reach the scaling: an underflow costs an assist of some 150 cycles a vector, and
// masked softmaxes are full of them.
KO_INLINE vf vexp_fast(vf x) {
#ifdef KO_AVX512
  const __mmask16 live = _mm512_cmp_ps_mask((__m512)x, (__m512)splat(-103.97208f), _CMP_NLE_UQ);
  x = vmin_number(x, splat(89.0f));
#else
  const vi dead = to_mask(x <= -103.97208f);
  x = vmin_number(select(dead, vf{}, x), splat(89.0f));
#endif
  const vf n = vround(x * 1.44269504088896341f);
  vf r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
#ifdef KO_AVX512
  return (vf)_mm512_maskz_scalef_ps(live, (__m512)(exp_core(r) + 1.0f), (__m512)n);
#else
  return select(dead, vf{}, scale2(exp_core(r) + 1.0f, n));
#endif
}
KO_INLINE vf vexpm1_fast(vf x) {
  const vf c = vmin_number(vmax_number(x, splat(-30.0f)), splat(89.0f));  // -1 from -17.4 on
  const vf n = vround(c * 1.44269504088896341f);
  vf r = fma(n, splat(-0.693359375f), c);
  r = fma(n, splat(2.12194440e-4f), r);
  const vf p = exp_core(r);
  // 2^n p + (2^n - 1), halved while the power could overflow.
  const vf s = scale2(splat(0.5f), n);
  const vf y = fma(s, p, s - 0.5f) * 2.0f;
  return x == 0 ? x : y;
}
KO_INLINE vf vsigmoid_fast(vf x) { return 1.0f / (1.0f + vexp_fast(vmax_number(-x, splat(-30.0f)))); }
KO_INLINE vf vtanh_fast(vf x) {
  const vf t = vexpm1_fast(-2.0f * vabs(x));
  return vcopysign(-t / (t + 2.0f), x);
}
KO_INLINE vf vlog_fast(vf x) {
#ifdef KO_AVX512
  vf e = (vf)_mm512_getexp_ps((__m512)x);
  vf m = (vf)_mm512_getmant_ps((__m512)x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
  // Mantissa to [sqrt(1/2), sqrt(2)).
  const vi high = to_mask(m > 1.41421356f);
  m = select(high, m * 0.5f, m);
  e = select(high, e + 1.0f, e);
#else
  const vi tiny = to_mask(x < 1.17549435e-38f);
  const vf y = select(tiny, x * 8388608.0f, x);
  const vi b = (vi)y;
  vf e = __builtin_convertvector(((b >> 23) & 255) - 126, vf) - select(tiny, splat(23.0f), vf{});
  vf m = (vf)((b & 0x007fffff) | 0x3f000000);
  const vi low = to_mask(m < 0.707106781f);
  m = select(low, m + m, m);
  e = select(low, e - 1.0f, e);
#endif
  const vf f = m - 1.0f, z = f * f;
  vf p = splat(7.0376836292e-2f);
  p = fma(p, f, splat(-1.1514610310e-1f));
  p = fma(p, f, splat(1.1676998740e-1f));
  p = fma(p, f, splat(-1.2420140846e-1f));
  p = fma(p, f, splat(1.4249322787e-1f));
  p = fma(p, f, splat(-1.6668057665e-1f));
  p = fma(p, f, splat(2.0000714765e-1f));
  p = fma(p, f, splat(-2.4999993993e-1f));
  p = fma(p, f, splat(3.3333331174e-1f));
  vf y2 = p * f * z;
  y2 = fma(e, splat(-2.12194440e-4f), y2);
  y2 = fma(z, splat(-0.5f), y2);
  vf r = fma(e, splat(0.693359375f), f + y2);
  const float inf = std::numeric_limits<float>::infinity();
  r = x == inf ? splat(inf) : r;
  r = x == 0 ? splat(-inf) : r;
  return (x < 0) | (x != x) ? splat(std::numeric_limits<float>::quiet_NaN()) : r;
}
KO_INLINE vf vlog1p_fast(vf x) {
  const vf u = 1.0f + x;
  const vf r = vlog_fast(u) + (x - (u - 1.0f)) / u;
  const float inf = std::numeric_limits<float>::infinity();
  const vf s = x == inf ? x : r;
  return u == 1.0f ? x : (x == -1.0f ? splat(-inf) : s);
}
KO_INLINE vf verf_fast(vf a) {
  const vf t = vabs(a), s = a * a;
  vf r = fma(splat(-1.72853470e-5f), t, splat(3.83197126e-4f));
  vf u = fma(splat(-3.88396438e-3f), t, splat(2.42546219e-2f));
  r = fma(r, s, u);
  r = fma(r, t, splat(-1.06777877e-1f));
  r = fma(r, t, splat(-6.34846687e-1f));
  r = fma(r, t, splat(-1.28717512e-1f));
  r = fma(r, t, -t);
  const vf far = vcopysign(1.0f - vexp_fast(r), a);
  vf q = splat(-5.96761703e-4f);
  q = fma(q, s, splat(4.99119423e-3f));
  q = fma(q, s, splat(-2.67681349e-2f));
  q = fma(q, s, splat(1.12819925e-1f));
  q = fma(q, s, splat(-3.76125336e-1f));
  q = fma(q, s, splat(1.28379166e-1f));
  const vf near = fma(q, a, a);
  return t > 0.927734375f ? far : near;
}
KO_INLINE float vexp_fast(float x) { return std::exp(x); }
KO_INLINE float vexpm1_fast(float x) { return std::expm1(x); }
KO_INLINE float vsigmoid_fast(float x) { return 1.0f / (1.0f + std::exp(-x)); }
KO_INLINE float vtanh_fast(float x) { return std::tanh(x); }
KO_INLINE float vlog_fast(float x) { return std::log(x); }
KO_INLINE float vlog1p_fast(float x) { return std::log1p(x); }
KO_INLINE float verf_fast(float x) { return std::erf(x); }

// Running maximum and sum of exp(x - maximum). While nothing but -inf was seen the sum is zero; a NaN or +inf makes the
// result NaN, as the two-pass form does.
template <typename V> KO_INLINE void online_step(V& top, V& total, V x) {
  const V next = vmax(top, x);
  if constexpr (is_scalar<V>) {
    const V shift = next == -std::numeric_limits<float>::infinity() ? V(0) : next;
    total = total * vexp_fast(top - shift) + vexp_fast(x - shift);
  } else {
    const V shift = select(to_mask(next == -std::numeric_limits<float>::infinity()), V{}, next);
    if (any(to_mask(next != top))) total = total * vexp_fast(top - shift);
    total = total + vexp_fast(x - shift);
  }
  top = next;
}
template <typename V> KO_INLINE void online_join(V& top, V& total, V top_b, V total_b) {
  const V next = vmax(top, top_b);
  const V shift = select(to_mask(next == -std::numeric_limits<float>::infinity()), V{}, next);
  total = total * vexp_fast(top - shift) + total_b * vexp_fast(top_b - shift);
  top = next;
}
template <typename V> KO_INLINE void online_across(V& top, V& total) {
#if KO_LANES == 16
  online_join<V>(top, total, swap_lanes<8>(top), swap_lanes<8>(total));
#endif
#if KO_LANES >= 8
  online_join<V>(top, total, swap_lanes<4>(top), swap_lanes<4>(total));
#endif
  online_join<V>(top, total, swap_lanes<2>(top), swap_lanes<2>(total));
  online_join<V>(top, total, swap_lanes<1>(top), swap_lanes<1>(total));
}
)KO";
}

const char* prelude_vec_text() {
  return R"KO(
// Functions of ATen/cpu/vec, on as many of its vectors as ours need.
template <typename T, typename F> KO_INLINE vec<T> with_vec(vec<T> x, F f) {
  typedef at::vec::Vectorized<T> A;
  alignas(64) T in[W], out[W];
  if constexpr (A::size() == W && sizeof(T) == 4) {
#ifdef KO_AVX512
    return (vec<T>)(__m512)f(A((__m512)x));
#elif defined(KO_AVX2)
    return (vec<T>)(__m256)f(A((__m256)x));
#endif
  }
  store(in, x);
  for (int l = 0; l < W; l += int(A::size())) f(A::loadu(in + l, std::min<int>(A::size(), W - l))).store(out + l, std::min<int>(A::size(), W - l));
  return load(out);
}
template <typename T, typename F> KO_INLINE vec<T> with_vec2(vec<T> x, vec<T> y, F f) {
  typedef at::vec::Vectorized<T> A;
  alignas(64) T a[W], b[W], out[W];
  store(a, x);
  store(b, y);
  for (int l = 0; l < W; l += int(A::size())) {
    const int n = std::min<int>(A::size(), W - l);
    f(A::loadu(a + l, n), A::loadu(b + l, n)).store(out + l, n);
  }
  return load(out);
}
#define KO_FROM_VEC(name, method, scalar)                                                            \
  KO_INLINE vf name(vf x) { return with_vec<float>(x, [](auto v) { return v.method(); }); }          \
  KO_INLINE vd name(vd x) { return with_vec<double>(x, [](auto v) { return v.method(); }); }         \
  KO_INLINE float name(float x) { return scalar(x); }                                                \
  KO_INLINE double name(double x) { return scalar(x); }
KO_FROM_VEC(vexp, exp, std::exp)
KO_FROM_VEC(vexp2, exp2, std::exp2)
KO_FROM_VEC(vexpm1, expm1, std::expm1)
KO_FROM_VEC(vlog, log, std::log)
KO_FROM_VEC(vlog2, log2, std::log2)
KO_FROM_VEC(vlog10, log10, std::log10)
KO_FROM_VEC(vlog1p, log1p, std::log1p)
KO_FROM_VEC(verf, erf, std::erf)
KO_FROM_VEC(verfc, erfc, std::erfc)
KO_FROM_VEC(vtanh, tanh, std::tanh)
KO_FROM_VEC(vsin, sin, std::sin)
KO_FROM_VEC(vcos, cos, std::cos)
KO_FROM_VEC(vtan, tan, std::tan)
KO_FROM_VEC(vasin, asin, std::asin)
KO_FROM_VEC(vacos, acos, std::acos)
KO_FROM_VEC(vatan, atan, std::atan)
KO_FROM_VEC(vsinh, sinh, std::sinh)
KO_FROM_VEC(vcosh, cosh, std::cosh)
template <typename V> KO_INLINE V vsigmoid(V x) { return 1 / (1 + vexp(-x)); }
KO_INLINE vf vpow(vf x, vf y) { return with_vec2<float>(x, y, [](auto a, auto b) { return a.pow(b); }); }
KO_INLINE vd vpow(vd x, vd y) { return with_vec2<double>(x, y, [](auto a, auto b) { return a.pow(b); }); }
KO_INLINE float vpow(float x, float y) { return std::pow(x, y); }
KO_INLINE double vpow(double x, double y) { return std::pow(x, y); }
KO_INLINE vf vatan2(vf x, vf y) { return with_vec2<float>(x, y, [](auto a, auto b) { return a.atan2(b); }); }
KO_INLINE vd vatan2(vd x, vd y) { return with_vec2<double>(x, y, [](auto a, auto b) { return a.atan2(b); }); }
KO_INLINE float vatan2(float x, float y) { return std::atan2(x, y); }
KO_INLINE double vatan2(double x, double y) { return std::atan2(x, y); }
)KO";
}

const char* prelude_transpose_text() {
  return R"KO(
#if KO_LANES == 16
#define KO_SEQUENCE(F) F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7), F(8), F(9), F(10), F(11), F(12), F(13), F(14), F(15)
#elif KO_LANES == 8
#define KO_SEQUENCE(F) F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7)
#else
#define KO_SEQUENCE(F) F(0), F(1), F(2), F(3)
#endif
#define KO_LOW(l) ((l) & K) ? W + ((l) ^ K) : (l)
#define KO_HIGH(l) ((l) & K) ? W + (l) : ((l) ^ K)
template <int K, typename T> KO_INLINE void exchange(vec<T> (&r)[W]) {
  typedef vec<typename IntOf<sizeof(T)>::type> I;
  const I low = I{KO_SEQUENCE(KO_LOW)}, high = I{KO_SEQUENCE(KO_HIGH)};
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i) {
    if (i & K) continue;
    const vec<T> a = r[i], b = r[i + K];
    r[i] = __builtin_shuffle(a, b, low);
    r[i + K] = __builtin_shuffle(a, b, high);
  }
}
// r[i][j] <-> r[j][i] for a square of lanes.
template <typename T> KO_INLINE void transpose(vec<T> (&r)[W]) {
  exchange<1, T>(r);
  exchange<2, T>(r);
#if KO_LANES >= 8
  exchange<4, T>(r);
#endif
#if KO_LANES >= 16
  exchange<8, T>(r);
#endif
}
)KO";
}

}  // namespace kernelopt
